// qft-ckpt verify DIR...: checks that all files are complete and undamaged.
#include "qft/checkpoint/verify.h"

#include "qft/checkpoint/inspect.h"

#include <iostream>

#include "command.h"

namespace qft::ckpt_tool {
namespace {

config::CommandSpec spec() {
  return make_spec(
      "verify",
      "Reads all files and checks them against the manifest, the checksums and the file formats; for an output_dir, checks every "
      "checkpoint in it. The exit code is 1 if something is wrong. NaN and infinite values are only warnings, because the files "
      "are as written.",
      "DIR...", 1);
}

int run(const config::CommandLine& line) {
  int code = kExitOk;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& dir : checkpoints_of(line.words)) {
    checkpoint::VerifyReport report = checkpoint::verify(dir);
    if (report.ok())
      checkpoint::find_non_finite(dir, report);
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

const Command kVerify{"verify", "checks that a checkpoint is complete and undamaged", spec, run};

}  // namespace qft::ckpt_tool
