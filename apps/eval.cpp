#include <nlohmann/json.hpp>

#include "qft/core/progress.h"
#include "qft/eval/perplexity.h"
#include "qft/train/data_setup.h"
#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft eval";
  s.summary = "loss and perplexity of a model, with its adapter if one is given";
  s.run_file = config::CommandSpec::RunFile::required;
  s.machine_readable = true;
  return s;
}

int run(comm::Session& session, const config::CommandLine& line) {
  const auto [watchdog, config, device] = prepare(session, line, config::Purpose::eval);
  auto& comm = session.world();
  auto instance = parallel::Instance::load(config, comm, device, parallel::Use::inference);
  const auto set = train::open_eval_data(config, instance->spec().config, comm);
  const auto loader = set.loader(config, comm);
  Progress bar("eval", loader->slots(), session.rank() == 0);
  const auto r = eval::evaluate(*instance, *loader, comm, config.eval.predict_logprobs,
                                [&](std::int64_t done) { bar.update(done); });
  bar.clear();
  if (session.rank() != 0) return kExitOk;
  if (line.json) {
    const nlohmann::ordered_json json = {{"eval_loss", r.loss},       {"perplexity", r.perplexity}, {"label_tokens", r.label_tokens},
                                         {"tokens", r.tokens},        {"items", r.items},           {"eval_runtime", r.seconds}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("eval_loss   {:.6f}\nperplexity  {:.4f}\nitems {}, tokens {}, label tokens {}, {:.1f} s, {:.0f} tok/s\n", r.loss,
               r.perplexity, r.items, r.tokens, r.label_tokens, r.seconds, static_cast<double>(r.tokens) / r.seconds);
  }
  return kExitOk;
}

}  // namespace

extern const Subcommand kEval{"eval", spec, run};

}  // namespace qft::apps
