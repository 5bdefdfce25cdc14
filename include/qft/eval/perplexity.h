// Loss and perplexity of a model over a set of items, and the head's output for each item.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/instance.h"
#include "qft/engine/reference.h"
#include "qft/loader/loader.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qft::eval {

/// Results over one set of items.
struct Likelihood {
  double loss = 0.0;  ///< the objective's loss; for cross-entropy the mean negative log-likelihood of a label token
  std::optional<double> perplexity = {};       ///< exp() of that mean, for objectives over single samples
  std::map<std::string, double> metrics = {};  ///< the objective's metrics by name; with compute_accuracy also accuracy
  std::int64_t label_tokens = 0, tokens = 0, items = 0;
  std::int64_t steps = 0;  ///< largest number of batches on a rank
  double seconds = 0.0;

  /// Returns "eval_loss 1.2345  perplexity 3.437", followed by the metrics.
  std::string scores() const;
};

/// Receives this rank's micro-batch of a round (without tokens if the rank has none) and the head's output for it, fp32 on the
/// CPU. Every rank calls it once per round.
using HeadValues = std::function<void(const loader::MicroBatch& batch, const at::Tensor& values)>;

struct PerplexityResult : Likelihood {
  /// Returns the same line with the loss of each dataset.
  std::string scores() const;

  std::vector<std::pair<std::string, Likelihood>> by_dataset = {};  ///< with eval_on_each_dataset
};

/// Makes one pass over `set` and scores it with the objective that `config` trains. With eval_on_each_dataset it evaluates one
/// dataset after another and computes the total from their sums. Collective: each rank computes its share of the items, and all
/// ranks get the total. `reference` is null if the run has no separate reference model. `values` may be empty. `bar` is the
/// progress bar's name; empty: no bar.
PerplexityResult evaluate(const config::RunConfig& config, engine::Instance& instance, engine::ColumnSource* reference,
                          const engine::EvalSet& set, comm::Communicator& comm, const HeadValues& values = {},
                          const std::string& bar = {});

/// Returns the names of the metrics that evaluate() reports for this run.
std::vector<std::string> metric_names(const config::RunConfig& config);
/// True if evaluate() reports a perplexity: the loss, or a metric, is the mean -log p of a label.
bool reports_perplexity(const config::RunConfig& config);

}  // namespace qft::eval
