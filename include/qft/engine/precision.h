// The element types of a run.
#pragma once

#include "qft/engine/model_source.h"
#include "qft/optim/precision.h"

#include <string>

#include <c10/core/Device.h>

namespace qft::engine {

/// Element types, and the reason for them: "infer_dtype", "bf16", "the model's files", ... In training a note for the user, or
/// empty.
struct ChosenPrecision {
  optim::Precision precision;
  std::string reason;
};

/// Returns the element types of training that the run file asks for.
optim::Precision training_precision(const config::RunConfig& config);

/// Returns infer_dtype if given; else the compute type of training, if a key asks for a type (compute_dtype, or bf16, fp16 or
/// pure_bf16 as true); else the type of the model's files, but fp32 for fp16 files, and fp32 for bf16 files with `bf16: false`.
ChosenPrecision inference_precision(const config::RunConfig& config, const io::ModelFiles& files);

/// Returns the element types of the run. `all_bf16`: the devices of all ranks have bf16; if not, replaces bf16 by fp32 if only the
/// model's files asked for it, else throws ConfigError on the ranks without it.
ChosenPrecision precision_of(const config::RunConfig& config, const ModelSource& source, c10::Device device, bool all_bf16);

/// True if the device computes in bf16.
bool has_bf16(c10::Device device);

}  // namespace qft::engine
