// Loss and perplexity of a model over a set of items, and the log-probability of every label token.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/engine/reference.h"
#include "qft/loader/loader.h"

#include <cstdint>
#include <filesystem>
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

/// One pass of `loader` from its start, scored by the objective that `config` trains. Collective: every rank holds its own part
/// of the items, and all get the result of the whole. `reference`: null where the run has none of its own. `progress` gets the
/// rounds done. `logprobs_file`: where not empty, rank 0 writes one JSON line a sequence in source order:
/// {"ids": [...], "positions": [...], "logprobs": [...]}, positions indexing ids, natural logarithms.
PerplexityResult evaluate(const config::RunConfig& config, engine::Instance& instance, engine::ReferenceModel* reference,
                          loader::EvalLoader& loader, comm::Communicator& comm, const std::filesystem::path& logprobs_file = {},
                          const std::function<void(std::int64_t)>& progress = {});

}  // namespace qft::eval
