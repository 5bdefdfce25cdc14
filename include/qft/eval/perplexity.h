// Loss and perplexity of a model over a set of items, and what its head gives of each.
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

/// Gets this rank's micro-batch of a round, without tokens where there is none, and what the head gave of it, fp32 on the CPU.
/// Every rank calls it once a round.
using HeadValues = std::function<void(const loader::MicroBatch& batch, const at::Tensor& values)>;

struct PerplexityResult : Likelihood {
  /// The same, with the loss of each dataset.
  std::string scores() const;

  std::vector<std::pair<std::string, Likelihood>> by_dataset = {};  ///< with eval_on_each_dataset
};

/// One pass over `set`, scored by the objective that `config` trains; with eval_on_each_dataset one dataset after the other, and
/// the whole from their sums. Collective: every rank computes its own part of the items, and all get the result of the whole.
/// `reference`: null where the run has none of its own. `values`: null where nobody asks. `bar`: named so; empty: none is drawn.
PerplexityResult evaluate(const config::RunConfig& config, engine::Instance& instance, engine::Reference* reference,
                          const engine::EvalSet& set, comm::Communicator& comm, const HeadValues& values = {},
                          const std::string& bar = {});

/// The metrics, by name, that such a result has.
std::vector<std::string> metric_names(const config::RunConfig& config);

}  // namespace qft::eval
