// qft-pack export|head PACK...: prints items as JSON lines.
#include "qft/core/error.h"
#include "qft/pack/print.h"

#include <iostream>
#include <limits>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::pack_tool {
namespace {

namespace po = boost::program_options;

config::CommandSpec export_spec() {
  config::CommandSpec spec =
      make_spec("export", "Prints every item as a JSON line of ids and label spans, in source order.", "PACK...");
  spec.min_words = 1;
  return spec;
}

config::CommandSpec head_spec() {
  config::CommandSpec spec = make_spec("head", "Prints the first items as JSON lines, as export does.", "PACK...");
  spec.min_words = 1;
  spec.options.add_options()("items", po::value<std::int64_t>()->default_value(3), "number of items to print");
  return spec;
}

int print_items(const config::CommandLine& line, std::int64_t count) {
  std::ios::sync_with_stdio(false);
  for (const std::string& path : line.words) pack::write_json_lines(*pack::PackReader::open(path), 0, count, std::cout);
  std::cout.flush();
  require(std::cout.good(), "cannot write the items to stdout");
  return kExitOk;
}

int run_export(const config::CommandLine& line) {
  return print_items(line, std::numeric_limits<std::int64_t>::max());
}

int run_head(const config::CommandLine& line) {
  return print_items(line, line.options["items"].as<std::int64_t>());
}

}  // namespace

const Command kExport{"export", export_spec, run_export};
const Command kHead{"head", head_spec, run_head};

}  // namespace qft::pack_tool
