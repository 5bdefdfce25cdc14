// Derives from a run file: the model with its adapter, the element types, the objective.
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

/// The purpose of a loaded model. Inference holds no gradients and no optimizer.
enum class Use { training, inference };

/// Returns the element types of training.
optim::Precision training_precision(const config::RunConfig& config);

/// The element types of inference, and the reason for them: "infer_dtype", "bf16", "the model's files", ...
struct InferencePrecision {
  optim::Precision precision;
  std::string reason;
};

/// Returns infer_dtype if given; else the compute type of training, if a key asks for a type (compute_dtype, or bf16, fp16 or
/// pure_bf16 as true); else the type of the model's files, but fp32 for fp16 files, and fp32 for bf16 files with `bf16: false`.
InferencePrecision inference_precision(const config::RunConfig& config, const io::ModelFiles& files);
/// If training computes in fp32 only because no key sets a type, and the files have 16 bits, returns a note with both types and
/// the key to set. Else returns an empty string.
std::string fp32_notice(const config::RunConfig& config, const io::ModelFiles& files);

/// Returns the model's config.json after rope_scaling: for cutoff_len tokens in training or if that key is given, else for twice
/// the positions that the model was trained for, as LLaMA-Factory does. Unchanged if the model already has enough positions.
model::ModelConfig architecture_of(const config::RunConfig& config, Use use);

/// Prompt rows shared by both sequences of a pair have one rotary angle each. Throws ConfigError if pairs share prompts but
/// longer sequences would need other angles.
void require_shareable_prompts(const config::RunConfig& config, const model::RopeConfig& rope);

/// Returns the units and tensors of the run's model from its config.json: with a sequence head in stages rm and seq_cls, and with
/// the adapter of Adapters::live or, without one, of the run file. Throws as the readers of those files do.
model::ModelSpec spec_of(const config::RunConfig& config, Use use);

/// Returns what the run trains. Reads only config.json and, for quantised models, the headers of the weight files.
plan::Recipe recipe_of(const config::RunConfig& config);

/// The adapters in adapter_name_or_path (in the subfolder adapter_folder, if given). As in LLaMA-Factory, all but the last are
/// merged into the base weights; with create_new_adapter in training the last one too.
struct Adapters {
  std::vector<std::filesystem::path> merged;
  std::filesystem::path live;  ///< the adapter that is run or trained; empty: none, or a new one
};
Adapters adapters_of(const config::RunConfig& config, Use use);
/// Warns of adapters that were made for a base model other than the run's.
void warn_of_other_bases(const config::RunConfig& config, const Adapters& adapters);

/// Finds the head of a reward model or classifier: beside the last adapter (also a merged one), else beside the model.
model::HeadFile head_file(const config::RunConfig& config, const model::ModelSpec& spec, const io::ModelFiles& files);

/// Returns a classifier's problem_type: from the run file, else from the model's config.json, else from the number of labels.
std::string problem_of(const config::RunConfig& config, const model::ModelConfig& model, std::int64_t labels);

}  // namespace qft::engine
