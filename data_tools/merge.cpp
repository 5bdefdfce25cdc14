// qft-pack merge PACK... --output PACK: merges several packs into one.
#include "qft/pack/merge.h"

#include "qft/core/error.h"
#include "qft/core/log.h"

#include <iostream>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>
#include <nlohmann/json.hpp>

namespace qft::pack_tool {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec spec =
      make_spec("merge",
                "Merges several packs into one, with the items in order. Tokenizer, template and options must be the same. "
                "mpirun -np N uses N ranks.",
                "PACK...");
  spec.min_words = 2;
  spec.options.add_options()("output,o", po::value<std::string>(), "the pack to write");
  return spec;
}

int run(comm::Session& session, const config::CommandLine& line) {
  log::init({line.log_level.value_or(log::Severity::info), session.rank(), session.size()});
  const std::string output = output_of(line, "qft-pack merge");
  const pack::PackReport report = pack::merge_packs(session.world(), {line.words.begin(), line.words.end()}, output);
  if (session.rank() != 0) return kExitOk;
  if (line.json)
    std::cout << nlohmann::ordered_json{{"path", output},
                                        {"was_current", report.was_current},
                                        {"items", report.summary.items},
                                        {"tokens", report.summary.tokens}}
              << "\n";
  else
    std::cout << output << ": " << report.summary.items << " items, " << report.summary.tokens << " tokens"
              << (report.was_current ? ", up to date\n" : "\n");
  return kExitOk;
}

}  // namespace

const Command kMerge{"merge", spec, nullptr, run};

}  // namespace qft::pack_tool
