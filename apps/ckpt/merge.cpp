// qft-ckpt merge ADAPTER --output DIR: merges an adapter into its base model.
#include "qft/core/hub.h"
#include "qft/core/units.h"
#include "qft/hub/fetch.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/adapter_config.h"
#include "qft/model/export.h"

#include <iostream>
#include <optional>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::ckpt_tool {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec spec = make_spec("merge",
                                       "Merges a LoRA adapter into its base model and writes safetensors in Hugging Face layout, "
                                       "the same bytes as qft export. Keeps only rows of one tensor in memory.",
                                       "ADAPTER", 1);
  spec.options.add_options()("base", po::value<std::string>(),
                             "the base model's directory; absent: base_model_name_or_path of adapter_config.json")(
      "tokenizer", po::value<std::string>(),
      "folder to copy the tokenizer's files from; absent: the base model, with the adapter's chat template and end token")(
      "output,o", po::value<std::string>(), "the directory to write")("shard-size", po::value<double>()->default_value(5),
                                                                      "largest shard, in GB (10^9 bytes)");
  return spec;
}

/// Returns the folder of a model with a hub name; nullopt if no cache has it.
std::optional<fs::path> in_cache(const std::string& name) {
  if (!is_hub_name(name)) return std::nullopt;
  for (const hub::Hub hub : {hub::Hub::huggingface, hub::Hub::modelscope})
    if (auto folder = hub::find_cached({hub, hub::Kind::model, name, ""}, {})) return folder;
  return std::nullopt;
}

fs::path base_of(const config::CommandLine& line, const fs::path& adapter) {
  if (line.options.count("base")) {
    const fs::path base = line.options["base"].as<std::string>();
    io::require_directory(base, "base model");
    model::warn_about_other_base(adapter, base.string(), base);
    return base;
  }
  const std::string name = model::read_base_model_name(adapter);
  if (!name.empty() && !fs::is_directory(name))
    if (const auto folder = in_cache(name)) return *folder;
  if (name.empty() || !fs::is_directory(name))
    fail_config(
        "qft-ckpt merge: the adapter's base model '{}' is neither a directory nor in a hub's cache: fetch it with qft fetch, or "
        "name the base model's directory with --base",
        name);
  return name;
}

model::ExportRequest request_of(const config::CommandLine& line) {
  const fs::path adapter = line.words[0];
  io::require_directory(adapter, "adapter");
  if (!fs::exists(adapter / model::kAdapterConfigFile))
    fail_config("'{}' has no {}: it is not an adapter{}", adapter.string(), model::kAdapterConfigFile,
                fs::exists(adapter / io::kModelConfigFile) ? ", but already a whole model" : "");
  model::ExportRequest request;
  request.adapter = adapter;
  request.target = output_of(line, "merge", "the directory to write the merged model to");
  request.base = base_of(line, adapter);
  request.tokenizer = line.options.count("tokenizer") ? fs::path(line.options["tokenizer"].as<std::string>()) : request.base;
  io::require_directory(request.tokenizer, "tokenizer");
  // A named tokenizer is copied unchanged.
  request.fixed_tokenizer = line.options.count("tokenizer") > 0;
  if (!request.fixed_tokenizer) request.changes = model::changes_between(request.base, adapter);
  const double gigabytes = line.options["shard-size"].as<double>();
  if (!(gigabytes > 0 && gigabytes < 1e6)) fail_config("qft-ckpt merge: --shard-size {} is not a valid size in GB", gigabytes);
  request.max_shard_bytes = static_cast<std::uint64_t>(gigabytes * 1e9);
  return request;
}

/// Describes the parts of the tokenizer that do not come from the base model.
std::string taken_over(const model::TokenizerChanges& changes) {
  std::string text;
  if (changes.chat_template) text += "; chat template: the adapter's";
  if (changes.end_token) text += fmt::format("; end token: the adapter's, '{}'", *changes.end_token);
  return changes.note.empty() ? text : fmt::format("{}; {}", text, changes.note);
}

int run(const config::CommandLine& line) {
  if (line.words.size() != 1) fail_config("qft-ckpt merge: give one adapter instead of {}", line.words.size());
  const model::ExportRequest request = request_of(line);
  const model::ExportReport report = model::export_model(io::posix_storage(), request);
  if (line.json)
    std::cout
        << nlohmann::ordered_json{{"path", request.target.string()}, {"base", request.base.string()}, {"tensors", report.tensors},
                                  {"merged", report.merged},         {"kept", report.kept},           {"bytes", report.bytes}}
        << "\n";
  else
    std::cout << request.target.string() << ": " << report.tensors << " tensors, " << report.merged
              << " of them merged with the adapter, " << format_bytes(static_cast<double>(report.bytes))
              << taken_over(request.changes) << "\n";
  return kExitOk;
}

}  // namespace

const Command kMerge{"merge", "merges an adapter into its base model", spec, run};

}  // namespace qft::ckpt_tool
