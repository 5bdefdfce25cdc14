// qft-ckpt diff A B: compares two checkpoints, adapters or models.
#include "qft/checkpoint/diff.h"

#include <iostream>
#include <limits>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::ckpt_tool {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec spec =
      make_spec("diff",
                "Compares two checkpoints, adapters or models by tensor names; ranks and strategies may differ. Exit codes are "
                "as in diff(1): 0 equal (same tensors, model and position in the run; differences in settings and layout are "
                "shown, but only count with --strict), 1 different, 2 not compared.",
                "A B", 2);
  spec.options.add_options()("strict", "settings, ranks, strategy and version must be equal too")(
      "rows", po::value<std::size_t>()->default_value(20), "number of different tensors to show; 0: all");
  return spec;
}

checkpoint::Difference compare(const std::string& a, const std::string& b) {
  try {
    return checkpoint::diff(a, b);
  } catch (const Error& e) {
    throw ConfigError(e.what());  // 1 would mean "different"
  }
}

int run(const config::CommandLine& line) {
  if (line.words.size() != 2) fail_config("qft-ckpt diff: give two directories instead of {}", line.words.size());
  const checkpoint::Difference difference = compare(line.words[0], line.words[1]);
  const auto rows = line.options["rows"].as<std::size_t>();
  if (line.json)
    std::cout << checkpoint::to_json(difference).dump(2) << "\n";
  else
    std::cout << checkpoint::format_difference(difference, rows == 0 ? std::numeric_limits<std::size_t>::max() : rows);
  return (line.options.count("strict") ? difference.identical() : difference.equal()) ? kExitOk : kExitFailed;
}

}  // namespace

const Command kDiff{"diff", "compares two checkpoints, adapters or models", spec, run};

}  // namespace qft::ckpt_tool
