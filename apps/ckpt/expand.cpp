// qft-ckpt expand MODEL --layers N --output DIR: writes a deeper model with the same outputs, for use_llama_pro.
#include "qft/model/expand.h"

#include "qft/io/file.h"

#include <iostream>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>
#include <nlohmann/json.hpp>

namespace qft::ckpt_tool {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec spec =
      make_spec("expand",
                "Writes a deeper model (LLaMA-Pro). The new layers are inserted evenly and change nothing at first. "
                "finetuning_type: freeze, use_llama_pro: true and freeze_trainable_layers: N train only the new layers.",
                "MODEL", 1);
  spec.options.add_options()("layers", po::value<std::int64_t>(), "number of layers to insert: a divisor of the model's number")(
      "output,o", po::value<std::string>(), "the directory to write");
  return spec;
}

int run(const config::CommandLine& line) {
  if (line.words.size() != 1) fail_config("qft-ckpt expand: give one model instead of {}", line.words.size());
  if (line.options.count("layers") == 0) fail_config("qft-ckpt expand: --layers is missing: give the number of layers to insert");
  model::ExpandRequest request;
  request.base = line.words[0];
  io::require_directory(request.base, "model");
  request.target = output_of(line, "expand", "the directory to write the deeper model to");
  request.layers = line.options["layers"].as<std::int64_t>();
  const std::int64_t tensors = model::expand_model(io::posix_storage(), request);
  if (line.json)
    std::cout << nlohmann::ordered_json{{"path", request.target.string()}, {"layers", request.layers}, {"tensors", tensors}}
              << "\n";
  else
    std::cout << request.target.string() << ": " << request.layers << " new layers, " << tensors << " tensors\n";
  return kExitOk;
}

}  // namespace

const Command kExpand{"expand", "writes a deeper model with the same outputs, for LLaMA-Pro", spec, run};

}  // namespace qft::ckpt_tool
