// qft compare OUT1 OUT2 ...: shows runs side by side, from their files.
#include "qft/watch/compare.h"

#include "qft/watch/terminal.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "subcommand.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft compare";
  s.summary = "shows runs side by side, from the files in their output_dirs: best values, keys that differ, curves";
  s.words = "OUTPUT_DIR...";
  s.min_words = 1;
  s.machine_readable = true;
  s.options.add_options()("report", boost::program_options::value<std::string>()->implicit_value(""),
                          "also write an HTML page: --report=FILE.html, or by default compare.html beside the first run");
  return s;
}

int run(const config::CommandLine& line) {
  std::vector<std::filesystem::path> dirs(line.words.begin(), line.words.end());
  std::filesystem::path page;
  if (line.options.count("report") > 0) {
    page = line.options["report"].as<std::string>();
    // `--report FILE.html`: the word after the option is not a run.
    const auto file =
        std::ranges::find_if(dirs, [](const auto& dir) { return dir.extension() == ".html" && !is_directory(dir); });
    if (page.empty() && file != dirs.end()) page = *file, dirs.erase(file);
  }
  const watch::Comparison comparison = watch::compare_runs(dirs);
  if (line.json)
    std::printf("%s\n", watch::compare_json(comparison).dump(1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  else
    std::printf("%s", watch::compare_text(comparison, watch::columns_of_output()).c_str());
  if (line.options.count("report") > 0)
    std::fprintf(line.json ? stderr : stdout, "%s\n", watch::write_compare_page(comparison, page).c_str());
  return comparison.left_out == 0 ? kExitOk : kExitFailed;
}

}  // namespace

extern const Subcommand kCompare{"compare", spec, nullptr, run};

}  // namespace qft::apps
