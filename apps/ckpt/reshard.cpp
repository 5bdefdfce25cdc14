// qft-ckpt reshard CHECKPOINT --ranks N --output DIR: rewrites the training state into another number of files.
#include "qft/checkpoint/reshard.h"

#include <iostream>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::ckpt_tool {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec spec =
      make_spec("reshard",
                "Rewrites a checkpoint as if another number of ranks had written it; 1: all training state in one file. Resuming "
                "does not need this, because any number of ranks can read any checkpoint. Use it to move and archive "
                "checkpoints, or to give each rank one large read.",
                "CHECKPOINT", 1);
  spec.options.add_options()("ranks,n", po::value<int>(), "number of files for the training state")(
      "output,o", po::value<std::string>(), "the directory to write, such as elsewhere/checkpoint-100");
  return spec;
}

int run(const config::CommandLine& line) {
  if (line.words.size() != 1) fail_config("qft-ckpt reshard: give one checkpoint instead of {}", line.words.size());
  if (!line.options.count("ranks"))
    fail_config("qft-ckpt reshard: --ranks is missing: give the number of files for the training state");
  const auto output = output_of(line, "reshard", "the directory to write, such as elsewhere/checkpoint-100");
  const checkpoint::Manifest manifest =
      checkpoint::reshard(io::posix_storage(), line.words[0], output, line.options["ranks"].as<int>());
  if (line.json)
    std::cout << nlohmann::ordered_json{{"path", output.string()},
                                        {"world_size", manifest.world_size},
                                        {"files", manifest.files.size()},
                                        {"tensors", manifest.tensors.size()}}
              << "\n";
  else
    std::cout << output.string() << ": step " << manifest.step << " for " << manifest.world_size << " ranks, "
              << manifest.tensors.size() << " tensors of training state\n";
  return kExitOk;
}

}  // namespace

const Command kReshard{"reshard", "rewrites the training state into another number of files", spec, run};

}  // namespace qft::ckpt_tool
