// A base model and what was trained from it, side by side.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"

#include <c10/core/Device.h>
#include <nlohmann/json_fwd.hpp>

namespace qft::eval {

/// In output_dir: a line an item, {"prompt": , "label": , "base": the base's answer, "predict": the tuned model's,
/// "base_scores": {"bleu-4": , ...}, "predict_scores": {...}}.
inline constexpr const char* kComparedFile = "compared_predictions.jsonl";

/// Loss, answers and scores of model_name_or_path alone, then of the tuned model: that with adapter_name_or_path, or where none
/// is given what training left in output_dir, an adapter or a whole model. One of them is in memory at a time. Returns
/// {"base": to_json(), "tuned": to_json(), "difference": of each figure, tuned less base}; rank 0 writes it to
/// compare_results.json in output_dir, the answers to kComparedFile, and of the tuned model all that evaluate() writes.
/// Collective; all get the result. Throws ConfigError where there is no tuned model, and as evaluate() does.
nlohmann::ordered_json compare(const config::RunConfig& config, comm::Communicator& comm, c10::Device device);

}  // namespace qft::eval
