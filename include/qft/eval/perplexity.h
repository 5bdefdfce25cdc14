// Loss and perplexity of a model over a set of items, and what its head gives of each.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/engine/reference.h"
#include "qft/loader/loader.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace qft::eval {

struct PerplexityResult {
  double loss = 0.0;  ///< the objective's: for cross-entropy the mean negative log-likelihood of a label token
  std::optional<double> perplexity = {};       ///< exp(loss), for cross-entropy
  std::map<std::string, double> metrics = {};  ///< the objective's, by name
  std::int64_t label_tokens = 0, tokens = 0, items = 0;
  std::int64_t steps = 0;  ///< batches of the rank that has most
  double seconds = 0.0;

  /// "eval_loss 1.2345  perplexity 3.437", or with the metrics.
  std::string scores() const;
};

/// Gets this rank's micro-batch of a round, without tokens where there is none, and what the head gave of it, fp32 on the CPU.
/// Every rank calls it once a round.
using HeadValues = std::function<void(const loader::MicroBatch& batch, const at::Tensor& values)>;

/// One pass of `loader` from its start, scored by the objective that `config` trains. Collective: every rank holds its own part
/// of the items, and all get the result of the whole. `reference`: null where the run has none of its own. `values`: null where
/// nobody asks. `progress` gets the rounds done.
PerplexityResult evaluate(const config::RunConfig& config, engine::Instance& instance, engine::ReferenceModel* reference,
                          loader::EvalLoader& loader, comm::Communicator& comm, const HeadValues& values = {},
                          const std::function<void(std::int64_t)>& progress = {});

}  // namespace qft::eval
