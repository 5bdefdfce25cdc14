// Evaluates a base model and the model trained from it side by side.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"

#include <c10/core/Device.h>
#include <nlohmann/json_fwd.hpp>

namespace qft::eval {

/// File in output_dir with one JSON line per item: {"prompt": , "label": , "base": the base model's answer, "predict": the tuned
/// model's answer, "base_scores": {"bleu-4": , ...}, "predict_scores": {...}}.
inline constexpr const char* kComparedFile = "compared_predictions.jsonl";

/// Computes loss, answers and scores of model_name_or_path alone, then of the tuned model. The tuned model is the base with
/// adapter_name_or_path; if that key is empty, it is the adapter or whole model that training left in output_dir. Only one of the
/// two models is in memory at a time. Returns {"base": to_json(), "tuned": to_json(), "difference": tuned minus base per number}.
/// Rank 0 writes this object to compare_results.json in output_dir, the answers to kComparedFile, and for the tuned model all
/// files that evaluate() writes. Collective; every rank gets the result. Throws ConfigError if there is no tuned model, and the
/// errors of evaluate().
nlohmann::ordered_json compare(const config::RunConfig& config, comm::Communicator& comm, c10::Device device);

}  // namespace qft::eval
