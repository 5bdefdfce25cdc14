// qft-ckpt verify DIR...: is everything there and as it was written.
#include "qft/checkpoint/verify.h"

#include "qft/checkpoint/inspect.h"

#include <iostream>

#include "command.h"

namespace qft::ckpt_tool {
namespace {

config::CommandSpec spec() {
  return make_spec(
      "verify",
      "Reads everything and checks it against the manifest, the checksums and the file formats; given an output_dir, every "
      "checkpoint in "
      "it. Exit code 1 if something is wrong. NaN and infinite values are warnings only: the files hold what was written.",
      "DIR...", 1);
}

int run(const config::CommandLine& line) {
  int code = kExitOk;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& dir : checkpoints_of(line.words)) {
    checkpoint::VerifyReport report = checkpoint::verify(dir);
    if (report.ok())
      checkpoint::find_not_finite(dir, report);
    else
      code = kExitFailed;
    if (line.json)
      list.push_back(checkpoint::to_json(dir, report));
    else
      std::cout << checkpoint::format_report(dir, report);
  }
  if (line.json) std::cout << list.dump(2) << "\n";
  return code;
}

}  // namespace

const Command kVerify{"verify", "whether it is whole and undamaged", spec, run};

}  // namespace qft::ckpt_tool
