#include "qft/train/predict.h"

#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/train/run_log.h"

namespace qft::train {

eval::PredictResult predict(parallel::Instance& instance, const EvalSet& set, const config::RunConfig& config, comm::Communicator& comm) {
  const activity::Phase phase("predict");
  const std::filesystem::path dir = config.training.output_dir;
  const auto result = eval::predict(instance, *set.pack, set.items, config, comm, dir / eval::kPredictionsFile);
  comm::agreed(comm, [&] {
    if (comm.rank() == 0) write_results(dir, "predict", result.values());
  });
  return result;
}

}  // namespace qft::train
