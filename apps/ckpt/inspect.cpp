// qft-ckpt inspect DIR...: describes checkpoints, adapters and models.
#include "qft/checkpoint/inspect.h"

#include <iostream>

#include "command.h"

namespace qft::ckpt_tool {
namespace {

config::CommandSpec spec() {
  return make_spec("inspect",
                   "Prints step, loss, position in the data, adapter, tensors and files of checkpoints, adapters and models; for "
                   "an output_dir, of each checkpoint in it.",
                   "DIR...", 1);
}

int run(const config::CommandLine& line) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& dir : checkpoints_of(line.words)) list.push_back(checkpoint::summarize(dir));
  if (line.json)
    std::cout << list.dump(2) << "\n";
  else
    for (const auto& summary : list) std::cout << checkpoint::format_summary(summary);
  return kExitOk;
}

}  // namespace

const Command kInspect{"inspect", "shows the content of a checkpoint", spec, run};

}  // namespace qft::ckpt_tool
