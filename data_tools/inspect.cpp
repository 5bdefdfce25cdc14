// qft-pack inspect PACK...: shows the content of packs, with a few items as text.
#include "qft/config/start.h"
#include "qft/core/error.h"
#include "qft/inputs/inputs.h"
#include "qft/pack/print.h"
#include "qft/tokenizer/tokenizer.h"

#include <iostream>
#include <memory>
#include <unistd.h>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::pack_tool {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec spec =
      make_spec("inspect",
                "Prints a pack's origin, purpose, counts, lengths and categories. If a run file or tokenizer_name_or_path=DIR "
                "names the tokenizer, also prints the first items as text with the trained parts marked.",
                "PACK...");
  spec.run_file = config::CommandSpec::RunFile::optional;
  spec.purpose = config::Purpose::pack;
  spec.options.add_options()("items", po::value<std::int64_t>()->default_value(3), "number of items to print as text");
  return spec;
}

std::shared_ptr<const tokenizer::Tokenizer> load_tokenizer(const config::CommandLine& line) {
  if (line.run_file.empty() && line.overrides.empty()) return nullptr;
  config::RunConfig config = config::start(line, config::Purpose::check);
  inputs::find(config, config::Purpose::plan, inputs::in_cache);
  const std::string& path = config.tokenizer_path();
  if (path.empty()) fail_config("qft-pack inspect: neither the run file nor an override names a tokenizer");
  return tokenizer::Tokenizer::load(path);
}

int run(const config::CommandLine& line) {
  const auto tokenizer = line.words.empty() ? nullptr : load_tokenizer(line);
  const auto items = tokenizer ? line.options["items"].as<std::int64_t>() : 0;
  const auto marks = ::isatty(STDOUT_FILENO) ? pack::LearnedMarks::colour : pack::LearnedMarks::brackets;
  // The parser takes a single .json or .yaml as the run file.
  const std::vector<std::string> paths =
      line.words.empty() && !line.run_file.empty() ? std::vector{line.run_file.string()} : line.words;
  if (paths.empty()) fail_config("qft-pack inspect: the pack is missing: qft-pack inspect PACK.h5 [RUN.yaml]");
  for (const std::string& path : paths) {
    const auto pack = pack::PackReader::open(path);
    if (tokenizer && tokenizer->hash() != pack->attributes().tokenizer_hash)
      fail_config("'{}' was made with a tokenizer that has the hash {}, but this tokenizer has {}: name the pack's tokenizer",
                  path, pack->attributes().tokenizer_hash, tokenizer->hash());
    if (line.json) {
      nlohmann::ordered_json summary = pack::summarize(*pack);
      if (tokenizer) summary["samples"] = pack::items_to_json(*pack, *tokenizer, items);
      std::cout << summary.dump(2) << "\n";
    } else {
      std::cout << pack::format_summary(*pack);
      if (tokenizer) std::cout << pack::format_items(*pack, *tokenizer, items, marks);
    }
  }
  return kExitOk;
}

}  // namespace

const Command kInspect{"inspect", spec, run};

}  // namespace qft::pack_tool
