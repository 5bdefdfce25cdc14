// The rows of the table of other tools' keys. Each tool's rows have their own file.
#pragma once

#include <span>
#include <string_view>

#include "foreign_keys.h"

namespace qft::dialects {

/// Keys that share everything but their names. Blanks separate the names.
struct ForeignRow {
  ForeignKey::Class kind;
  std::string_view names;
  std::string_view reason = {};
  std::string_view harmless = {};
  std::string_view key = {};
  std::string_view words = {};
};

constexpr auto kNoEffect = ForeignKey::Class::no_effect;
constexpr auto kRefused = ForeignKey::Class::refused;

constexpr ForeignRow renamed(std::string_view names, std::string_view key, std::string_view words = {}) {
  return {.kind = ForeignKey::Class::renamed, .names = names, .key = key, .words = words};
}

constexpr ForeignRow converted(std::string_view names, std::string_view rules, std::string_view reason) {
  return {.kind = ForeignKey::Class::converted, .names = names, .reason = reason, .words = rules};
}

constexpr ForeignRow either(std::string_view name, std::string_view swift, std::string_view otherwise,
                            std::string_view meanings) {
  return {.kind = ForeignKey::Class::either, .names = name, .reason = meanings, .key = swift, .words = otherwise};
}

constexpr std::string_view kOff = "null|false|no";
constexpr std::string_view kZeroNames =
    "default-zero0=zero0|default-zero1=zero1|default-zero2=zero2|default-zero3=zero3|default-zero2-offload="
    "zero2_offload|"
    "default-zero3-offload=zero3_offload|zero2-offload=zero2_offload|zero3-offload=zero3_offload";

// Reasons that several rows share.
constexpr std::string_view kText = "models are text only";
constexpr std::string_view kTower =
    "qft trains only the text model and leaves the vision tower and its projector unchanged: remove the key, or set it to true";
constexpr std::string_view kFrozen = "null|true";
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
constexpr std::string_view kRanks = "mpirun or srun starts the ranks: no rendezvous is needed";

std::span<const ForeignRow> llama_factory_rows();  // also the keys of transformers' TrainingArguments
std::span<const ForeignRow> v1_rows();             // keys of LLaMA-Factory's version 1
std::span<const ForeignRow> swift_rows();
std::span<const ForeignRow> other_rows();

}  // namespace qft::dialects
