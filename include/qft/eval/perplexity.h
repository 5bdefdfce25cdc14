// Loss and perplexity of a model over a set of items, and the log-probability of every label token.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/instance.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qft::eval {

/// Of one set of items.
struct Likelihood {
  double loss = 0.0;  ///< the objective's: for cross-entropy the mean negative log-likelihood of a label token
  std::optional<double> perplexity = {};       ///< exp() of that mean, of objectives of single samples
  std::map<std::string, double> metrics = {};  ///< the objective's, by name; with compute_accuracy accuracy
  std::int64_t label_tokens = 0, tokens = 0, items = 0;
  std::int64_t steps = 0;  ///< batches of the rank that has most
  double seconds = 0.0;

  /// "eval_loss 1.2345  perplexity 3.437", or with the metrics.
  std::string scores() const;
};

struct PerplexityResult : Likelihood {
  /// The same, with the loss of each dataset.
  std::string scores() const;

  std::vector<std::pair<std::string, Likelihood>> by_dataset = {};  ///< with eval_on_each_dataset
};

/// One pass over `set`, scored by the objective that `config` trains; with eval_on_each_dataset one dataset after the other, and
/// the whole from their sums. Collective: every rank computes its own part of the items, and all get the result of the whole.
/// `logprobs_file`: where not empty, rank 0 writes one JSON line a sequence in the order of the pass:
/// {"ids": [...], "positions": [...], "logprobs": [...]}, positions indexing ids, natural logarithms.
PerplexityResult evaluate(const config::RunConfig& config, engine::Instance& instance, const engine::EvalSet& set,
                          comm::Communicator& comm, const std::filesystem::path& logprobs_file = {}, bool shows_progress = false);

/// The metrics, by name, that such a result has.
std::vector<std::string> metric_names(const config::RunConfig& config);

}  // namespace qft::eval
