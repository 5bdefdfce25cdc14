// qft-ckpt inspect DIR...: what a checkpoint, adapter or model is.
#include "qft/checkpoint/inspect.h"

#include <iostream>

#include "command.h"

namespace qft::ckpt_tool {
namespace {

config::CommandSpec spec() {
  return make_spec("inspect",
                   "Prints step, loss, place in the data, adapter, tensors and files of checkpoints, adapters and "
                   "models; of each checkpoint in an output_dir.",
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

const Command kInspect{"inspect", "what a checkpoint holds", spec, run};

}  // namespace qft::ckpt_tool
