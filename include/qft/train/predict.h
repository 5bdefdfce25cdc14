// Answers to an evaluation set, with their scores, in the output directory.
#pragma once

#include "qft/eval/predict.h"
#include "qft/train/data_setup.h"

namespace qft::train {

/// eval::predict() of `set`, which writes generated_predictions.jsonl; rank 0 writes predict_results.json and all_results.json
/// beside it, in output_dir. Collective; throws as eval::predict() does.
eval::PredictResult predict(parallel::Instance& instance, const EvalSet& set, const config::RunConfig& config, comm::Communicator& comm);

}  // namespace qft::train
