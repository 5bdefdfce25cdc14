#include "qft/eval/score.h"

#include "subcommand.h"
#include <boost/program_options/value_semantic.hpp>
#include <nlohmann/json.hpp>

namespace qft::apps {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft score";
  s.summary =
      "writes scores, labels or embeddings of a reward model, a classifier, a reranker or an embedding model, one JSON line per item";
  s.run_file = config::CommandSpec::RunFile::required;
  s.purpose = config::Purpose::eval;
  s.machine_readable = true;
  s.options.add_options()("output", po::value<std::string>(), "file to write [scores.jsonl in output_dir]");
  return s;
}

std::filesystem::path output_of(const config::CommandLine& line, const config::RunConfig& config) {
  if (line.options.count("output") > 0) return line.options["output"].as<std::string>();
  if (config.training.output_dir.empty()) fail_config("qft score has no file to write: give --output FILE or output_dir");
  return std::filesystem::path(config.training.output_dir) / eval::kScoresFile;
}

nlohmann::ordered_json to_json(const eval::ScoreResult& r) {
  nlohmann::ordered_json json = {{"file", r.file}, {"items", r.items}, {"tokens", r.tokens}};
  if (!r.classes && !r.vectors) json.update({{"lowest", r.lowest}, {"mean", r.mean}, {"highest", r.highest}});
  json["seconds"] = r.seconds;
  for (const auto& [name, value] : r.metrics) json[name] = value;
  return json;
}

int run(comm::Session& session, const config::CommandLine& line) {
  const auto [config, device] = prepare(session, line, config::Purpose::eval);
  const auto result = eval::score(config, session.world(), device, output_of(line, config));
  if (session.rank() != 0) return kExitOk;
  if (line.json) {
    fmt::print("{}\n", to_json(result).dump());
    return kExitOk;
  }
  for (const auto& [name, value] : result.metrics) fmt::print("{:16}  {:.4f}\n", name, value);
  if (!result.classes && !result.vectors)
    fmt::print("{:16}  {:.4f}, from {:.4f} to {:.4f}\n", "mean score", result.mean, result.lowest, result.highest);
  fmt::print("{} {}, tokens {}, {:.1f} s, {:.0f} tok/s; '{}'\n",
             result.pairs     ? "pairs"
             : result.classes ? "texts"
             : result.records ? "records"
                              : "answers",
             result.items, result.tokens, result.seconds, static_cast<double>(result.tokens) / result.seconds, result.file);
  return kExitOk;
}

}  // namespace

extern const Subcommand kScore{"score", spec, run};

}  // namespace qft::apps
