// The tables of other tools' keys. Each tool's tables have their own file.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "key_rows.h"

namespace qft::dialects {

struct ForeignTables {
  std::span<const Renamed> renamed = {};
  std::span<const Converted> converted = {};
  std::span<const Either> either = {};
  Names combined = {};    // work together with other keys: see translate.cpp, megatron.h and degrees.h
  Names sections = {};    // mappings of keys, and the names of version 1's: see sections.h
  Names ranks = {};       // numbers that must equal the number of ranks
  Names data_ranks = {};  // the same for data ranks
  std::span<const NoEffect> no_effect = {};
  std::span<const Refused> refused = {};
};

constexpr Names kOff = {"null", "false", "no"};
constexpr Names kFrozen = {"null", "true"};
constexpr std::initializer_list<Word> kZeroNames = {{"default-zero0", "zero0"},
                                                    {"default-zero1", "zero1"},
                                                    {"default-zero2", "zero2"},
                                                    {"default-zero3", "zero3"},
                                                    {"default-zero2-offload", "zero2_offload"},
                                                    {"default-zero3-offload", "zero3_offload"},
                                                    {"zero2-offload", "zero2_offload"},
                                                    {"zero3-offload", "zero3_offload"}};

// Reasons that several rows share.
constexpr std::string_view kText = "models are text only";
constexpr std::string_view kTower =
    "qft trains only the text model and leaves the vision tower and its projector unchanged: remove the key, or set it to true";
constexpr std::string_view kTuner = "it belongs to a method that qft does not have";
constexpr std::string_view kEngine = "it belongs to another inference engine";
constexpr std::string_view kMetrics = "metrics go to trainer_log.jsonl in output_dir and to the trackers in report_to";
constexpr std::string_view kKernels = "qft has its own kernels";
constexpr std::string_view kCache = "the hubs' own variables set the cache folders: HF_HOME, HF_HUB_CACHE, MODELSCOPE_CACHE";
constexpr std::string_view kToken =
    "checkpoints contain a copy of the run file: set HF_TOKEN or MODELSCOPE_API_TOKEN in the environment instead";
constexpr std::string_view kAttention = "attention uses the fastest kernel that fits; results differ only in rounding";
constexpr std::string_view kVocabulary =
    "add tokens before training: qft-ckpt add-tokens MODEL --tokens A,B --output DIR, then train DIR";
constexpr std::string_view kStages =
    "pipeline parallelism is not implemented: remove the key; tensor_parallel splits matrices over ranks, and strategy: zero3 "
    "splits weights, gradients and optimizer state";
constexpr std::string_view kExpertRanks =
    "expert parallelism is not implemented: remove the key; strategy: zero3 splits the experts' weights over ranks";
constexpr std::string_view kRowsShared = "tensor ranks always share the rows between matrices, with the same result";
constexpr Names kFlags = {"true", "false", "0", "1"};
constexpr std::string_view kSequenceDegree =
    "true and false are Megatron's, where it goes with tensor parallelism; for a number of ranks that share each sequence write "
    "context_parallel (or sequence_parallel_size)";
constexpr std::string_view kRanks = "mpirun or srun starts the ranks: no rendezvous is needed";

const ForeignTables& llama_factory_tables();  // also the keys of transformers' TrainingArguments
std::vector<ForeignTables> v1_tables();       // LLaMA-Factory's version 1: the top level and each section
const ForeignTables& swift_tables();
const ForeignTables& megatron_tables();       // of Megatron alone
const ForeignTables& megatron_core_tables();  // also of LLaMA-Factory's Megatron backend
const ForeignTables& other_tables();

}  // namespace qft::dialects
