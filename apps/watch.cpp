// qft watch OUTPUT_DIR: shows a run from its files.
#include "qft/watch/terminal.h"

#include <cstdio>

#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft watch";
  s.summary = "shows a running or finished run from the files in its output_dir, on any machine that can read them";
  s.words = "OUTPUT_DIR";
  s.min_words = 1;
  s.options.add_options()("once", "print one page and exit; needs no terminal")("report",
                                                                                "write report.html to OUTPUT_DIR and exit");
  return s;
}

int run(const config::CommandLine& line) {
  if (line.words.size() != 1) fail_config("qft watch shows one run, but {} directories were given", line.words.size());
  const std::string& dir = line.words[0];
  if (line.options.count("report") > 0)
    std::printf("%s\n", watch::write_report(dir).c_str());
  else if (line.options.count("once") > 0)
    watch::print_once(dir);
  else
    watch::show(dir);
  return kExitOk;
}

}  // namespace

extern const Subcommand kWatch{"watch", spec, nullptr, run};

}  // namespace qft::apps
