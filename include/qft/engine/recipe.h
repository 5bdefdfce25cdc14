// What a configuration asks to be computed: the model with its adapter, the element types, the objective.
#pragma once

#include "qft/config/run_config.h"
#include "qft/io/model_files.h"
#include "qft/model/load.h"
#include "qft/model/spec.h"
#include "qft/optim/precision.h"
#include "qft/plan/memory_plan.h"

#include <filesystem>
#include <string>
#include <vector>

namespace qft::engine {

/// What a model is loaded for. Inference holds no gradients and no optimizer.
enum class Use { training, inference };

/// The element types that training has by a configuration.
optim::Precision training_precision(const config::RunConfig& config);

/// The element types of inference, and what they follow from: "infer_dtype", "bf16", "the model's files", ...
struct InferencePrecision {
  optim::Precision precision;
  std::string reason;
};

/// infer_dtype where it is given; else what training computes in, where a key asks for a type (compute_dtype, or bf16, fp16 or
/// pure_bf16 as true); else the type of the model's files, but fp32 for fp16 files, and for bf16 files under `bf16: false`.
InferencePrecision inference_precision(const config::RunConfig& config, const io::ModelFiles& files);
/// Where no key of a training run says what it computes in, which is fp32 then, and the files have 16 bits: both, and the key to
/// set. Else empty.
std::string note_of_fp32(const config::RunConfig& config, const io::ModelFiles& files);

/// The config.json of a configuration's model, with rope_scaling as it asks: for cutoff_len tokens in training and where that is
/// given, else for twice as many as the model was trained for, as LLaMA-Factory does. Unchanged where that many need no scaling.
model::ModelConfig architecture_of(const config::RunConfig& config, Use use);

/// Rows that sequences of a pair share have one angle each: throws ConfigError where pairs share prompts and longer ones would
/// have angles of their own.
void require_own_prompts(const config::RunConfig& config, const model::RopeConfig& rope);

/// The units and tensors of a configuration's model, by its config.json, in stages rm and seq_cls with a head of sequences, with
/// LoRA as configured or as Adapters::live has it. Throws as the readers of those files do.
model::ModelSpec spec_of(const config::RunConfig& config, Use use);

/// What a configuration trains. Reads of the model config.json only, and the headers of its files where they are quantised.
plan::Recipe recipe_of(const config::RunConfig& config);

/// What adapter_name_or_path names (in each directory adapter_folder if given). As in LLaMA-Factory all but the last are merged
/// into the base weights, with create_new_adapter in training the last one too.
struct Adapters {
  std::vector<std::filesystem::path> merged;
  std::filesystem::path live;  ///< the one that is run, and trained; empty: none, or a new one
};
Adapters adapters_of(const config::RunConfig& config, Use use);
/// Warns of those that were made for another base model than the run's.
void warn_of_other_bases(const config::RunConfig& config, const Adapters& adapters);

/// Where the head of a reward model or a classifier is: with the last adapter, a merged one too, or, without any, with the model.
model::HeadFile head_file(const config::RunConfig& config, const model::ModelSpec& spec, const io::ModelFiles& files);

/// A classifier's problem_type: as the run file says, else the model's config.json, else by the number of labels.
std::string problem_of(const config::RunConfig& config, const model::ModelConfig& model, std::int64_t labels);

}  // namespace qft::engine
