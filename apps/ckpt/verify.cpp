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
      "Reads everything and holds it against manifest, checksums and the rules of the formats; in each "
      "checkpoint of an output_dir. Exit code 1 where something is wrong. Tensors with NaN or infinite values are "
      "warnings: they are as they were written.",
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
