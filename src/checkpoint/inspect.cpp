#include "qft/checkpoint/inspect.h"

#include "qft/checkpoint/manifest.h"
#include "qft/core/error.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"

#include <algorithm>
#include <chrono>
#include <map>

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

// Reads an optional JSON file: null if it is missing. verify() reports damage.
json read_json(const fs::path& path) {
  if (!fs::exists(path)) return nullptr;
  try {
    json value = io::read_json(path);
    return value.is_object() ? value : json(nullptr);
  } catch (const Error&) {
    return nullptr;
  }
}

void copy_key(ordered_json& to, const std::string& key, const json& from, const std::string& from_key) {
  if (from.is_object() && from.contains(from_key) && !from[from_key].is_null()) to[key] = from[from_key];
}

struct Totals {
  std::uint64_t tensors = 0, parameters = 0;
  std::map<std::string, std::uint64_t> dtypes;  // bytes per dtype name

  void add(DType dtype, std::uint64_t elements) {
    ++tensors;
    parameters += elements;
    dtypes[std::string(safetensors_name(dtype))] += elements * size_of(dtype);
  }
  void write(ordered_json& summary) const {
    summary["tensors"] = tensors;
    summary["parameters"] = parameters;
    summary["dtypes"] = dtypes;
  }
};

void add_manifest(ordered_json& summary, const fs::path& dir) {
  const Manifest manifest = Manifest::read(dir);
  summary["step"] = manifest.step;
  summary["world_size"] = manifest.world_size;
  summary["qft_version"] = manifest.qft_version;
  for (const char* key : {"epoch", "loss", "strategy", "global_batch_size"}) copy_key(summary, key, manifest.state, key);
  copy_key(summary, "base_model", manifest.state, "model_name_or_path");
  if (!manifest.run.id.empty()) summary["run"] = manifest.run.id;
  if (const auto& parent = manifest.run.parent) summary["parent"] = fmt::format("'{}', step {}", parent->path, parent->step);
  Totals totals;
  for (const TensorRecord& t : manifest.tensors) totals.add(t.dtype, t.elements());
  totals.write(summary);
}

void add_trainer_state(ordered_json& summary, const fs::path& dir) {
  const json state = read_json(dir / "trainer_state.json");
  if (!state.is_object()) return;
  if (!summary.contains("step")) copy_key(summary, "step", state, "global_step");
  if (!summary.contains("epoch")) copy_key(summary, "epoch", state, "epoch");
  const json history = state.value("log_history", json::array());
  if (summary.contains("loss") || !history.is_array()) return;
  for (auto entry = history.rbegin(); entry != history.rend(); ++entry)
    if (entry->is_object() && entry->contains("loss")) {
      summary["loss"] = (*entry)["loss"];
      return;
    }
}

void add_adapter(ordered_json& summary, const json& adapter) {
  ordered_json out = ordered_json::object();
  copy_key(out, "type", adapter, "peft_type");
  copy_key(out, "rank", adapter, "r");
  copy_key(out, "block_size", adapter, "oft_block_size");
  copy_key(out, "alpha", adapter, "lora_alpha");
  copy_key(out, "targets", adapter, "target_modules");
  if (out.contains("targets") && out["targets"].is_array()) std::sort(out["targets"].begin(), out["targets"].end());
  if (adapter.value("use_dora", json(false)) == true) out["dora"] = true;
  summary["adapter"] = out;
  copy_key(summary, "base_model", adapter, "base_model_name_or_path");
}

void add_files(ordered_json& summary, const fs::path& dir) {
  std::vector<std::pair<std::string, std::uint64_t>> files;
  fs::file_time_type newest = fs::file_time_type::min();
  for (const auto& item : fs::directory_iterator(dir)) {
    if (!item.is_regular_file()) continue;
    files.emplace_back(item.path().filename().string(), item.file_size());
    newest = std::max(newest, item.last_write_time());
  }
  std::sort(files.begin(), files.end());
  std::uint64_t bytes = 0;
  ordered_json list = ordered_json::array();
  for (const auto& [name, size] : files) {
    bytes += size;
    list.push_back({{"name", name}, {"bytes", size}});
  }
  summary["bytes"] = bytes;
  summary["files"] = std::move(list);
  if (files.empty()) return;
  const auto age = fs::file_time_type::clock::now() - newest;
  summary["age_seconds"] = std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(age).count());
}

Totals count_tensors(const std::vector<fs::path>& files) {
  Totals totals;
  for (const fs::path& path : files) {
    const auto file = io::open_tensor_file(path);
    for (const io::TensorEntry& entry : file->entries()) totals.add(entry.dtype, entry.elements());
  }
  return totals;
}

ordered_json summarize_file(const fs::path& path) {
  ordered_json summary{{"path", path.string()}, {"kind", "file of tensors"}, {"manifest", false}};
  count_tensors({path}).write(summary);
  summary["bytes"] = fs::file_size(path);
  summary["files"] = ordered_json::array({{{"name", path.filename().string()}, {"bytes", fs::file_size(path)}}});
  return summary;
}

}  // namespace

ordered_json summarize(const fs::path& dir) {
  if (fs::is_regular_file(dir)) return summarize_file(dir);
  io::require_directory(dir, "checkpoint");
  const json adapter = read_json(dir / "adapter_config.json"), config = read_json(dir / io::kModelConfigFile);
  const bool manifest = fs::exists(dir / kManifestFile);
  const std::vector<fs::path> weights = io::weight_files(dir);
  require(manifest || !weights.empty(), "'{}' is not a checkpoint, adapter or model: it has neither {} nor weight files",
          dir.string(), kManifestFile);
  ordered_json summary;
  summary["path"] = dir.string();
  summary["kind"] = manifest              ? "qft checkpoint"
                    : adapter.is_object() ? "PEFT adapter"
                    : config.is_object()  ? "Hugging Face model"
                                          : "files of weights";
  summary["manifest"] = manifest;
  if (manifest) add_manifest(summary, dir);
  add_trainer_state(summary, dir);
  if (adapter.is_object()) add_adapter(summary, adapter);
  if (config.is_object() && config.contains("architectures") && config["architectures"].is_array() &&
      !config["architectures"].empty())
    summary["architecture"] = config["architectures"][0];
  if (!manifest) count_tensors(weights).write(summary);
  add_files(summary, dir);
  return summary;
}

}  // namespace qft::checkpoint
