// qft watch OUTPUT_DIR: a run as its files show it.
#include "qft/watch/terminal.h"

#include <cstdio>

#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft watch";
  s.summary = "shows a run that goes on or is over, from the files in its output_dir; on any machine that sees them";
  s.words = "OUTPUT_DIR";
  s.least_words = 1;
  s.options.add_options()("once", "print one page and end; needs no terminal")("report", "write report.html there and end");
  return s;
}

int run(const config::CommandLine& line) {
  if (line.words.size() != 1) fail_config("qft watch shows one run, {} directories were given", line.words.size());
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
