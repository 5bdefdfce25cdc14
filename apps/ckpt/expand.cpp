// qft-ckpt expand MODEL --layers N --output DIR: a deeper model that computes the same, for use_llama_pro.
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
                "Writes a model with layers put in evenly that change nothing at first (LLaMA-Pro): "
                "finetuning_type: freeze, use_llama_pro: true and freeze_trainable_layers: N train them alone.",
                "MODEL", 1);
  spec.options.add_options()("layers", po::value<std::int64_t>(), "how many layers to put in: a divisor of the model's")(
      "output,o", po::value<std::string>(), "the directory to write");
  return spec;
}

int run(const config::CommandLine& line) {
  if (line.words.size() != 1) fail_config("qft-ckpt expand: takes one model, {} given", line.words.size());
  if (line.options.count("layers") == 0) fail_config("qft-ckpt expand: --layers is missing: how many layers to put in");
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
    std::cout << request.target.string() << ": " << request.layers << " layers more, " << tensors << " tensors\n";
  return kExitOk;
}

}  // namespace

const Command kExpand{"expand", "a deeper model that computes the same, for LLaMA-Pro", spec, run};

}  // namespace qft::ckpt_tool
