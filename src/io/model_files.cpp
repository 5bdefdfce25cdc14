#include "qft/io/model_files.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/member.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

namespace qft::io {
namespace {

namespace fs = std::filesystem;

// Explains the remedy for a directory with weights in another format.
std::string describe_other_weights(const fs::path& dir) {
  std::string gguf;
  for (const auto& item : fs::directory_iterator(dir))
    if (item.path().extension() == ".gguf") gguf = item.path().filename().string();
  if (!gguf.empty())
    return fmt::format(
        "it has '{}', which qft does not read: convert it once in Python with "
        "AutoModelForCausalLM.from_pretrained('{}', gguf_file='{}').save_pretrained(OUT)",
        gguf, dir.string(), gguf);
  if (fs::exists(adapter_weights_of(dir)))
    return "it is an adapter: give it as adapter_name_or_path and the base model as model_name_or_path";
  return "is the download complete?";
}

// Returns an index's "weight_map": tensor name to file name, checked to stay inside the directory.
std::map<std::string, std::string> read_weight_map(const fs::path& path) {
  const nlohmann::json json = read_json(path);
  require(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(),
          "'{}' is not an index of shards: it has no object \"weight_map\"", path.string());
  std::map<std::string, std::string> result;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    require(file.is_string(), "'{}': the file of tensor '{}' is not a text", path.string(), tensor);
    const std::string name = file.get<std::string>();
    require(is_plain_name(name), "'{}' puts tensor '{}' into {}: only plain file names of the same directory are allowed",
            path.string(), tensor, file.dump());
    result.emplace(tensor, name);
  }
  return result;
}

/// True for "model-00001-of-00004.safetensors" and the like, as transformers names the shards of a model.
bool is_shard_name(const std::string& name) {
  return (name.starts_with("model-") && name.ends_with(".safetensors") && name.find("-of-") != std::string::npos) ||
         (name.starts_with("pytorch_model-") && name.ends_with(".bin"));
}

/// Returns the shards that the index of `dir` names; none if there is no index, a damaged one, or the model in one file.
std::set<std::string> shards_named_in(const fs::path& dir) {
  std::set<std::string> named;
  for (const WeightNames& way : kModelWeights) {
    if (fs::exists(dir / way.file)) break;
    if (!fs::exists(dir / way.index)) continue;
    try {
      for (const auto& [tensor, file] : read_weight_map(dir / way.index)) named.insert(file);
    } catch (const Error&) {
      named.clear();  // the error is reported when the model is opened
    }
    break;
  }
  return named;
}

/// True for files in Mistral's and Meta's own format, next to transformers' files.
bool is_consolidated(const std::string& name) {
  return name.starts_with("consolidated") && (name.ends_with(".safetensors") || name.ends_with(".pth"));
}

/// Returns the names of weight files in `dir` that are not in `used`: another copy of the model, perhaps an older one.
std::vector<std::string> unused_weights(const fs::path& dir, const std::set<std::string>& used) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(dir)) {
    const std::string name = item.path().filename().string();
    const bool is_whole = std::ranges::any_of(kModelWeights, [&](const WeightNames& way) { return name == way.file; });
    if ((is_whole || is_shard_name(name) || is_consolidated(name)) && !used.contains(name)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

bool holds_model_weights(const fs::path& dir) {
  return std::ranges::any_of(kModelWeights,
                             [&](const WeightNames& way) { return fs::exists(dir / way.file) || fs::exists(dir / way.index); });
}

fs::path adapter_weights_of(const fs::path& dir) {
  for (const WeightNames& way : kAdapterWeights)
    if (fs::exists(dir / way.file)) return member_of(dir, way.file);
  return dir / kAdapterWeights[0].file;
}

fs::path value_head_of(const fs::path& dir) {
  for (const char* name : kValueHeadFiles)
    if (fs::exists(dir / name)) return member_of(dir, name);
  return {};
}

std::vector<fs::path> weight_files(const fs::path& dir) {
  std::vector<fs::path> safe, torch;
  for (const auto& item : fs::directory_iterator(dir)) {
    const std::string name = item.path().filename().string();
    if (item.path().extension() == ".safetensors")
      safe.push_back(item.path());
    else if (item.path().extension() == ".bin" && (name.starts_with("pytorch_model") || name.starts_with("adapter_model")))
      torch.push_back(item.path());
  }
  std::vector<fs::path>& files = safe.empty() ? torch : safe;
  // The index of a sharded model names its files; others may be left over from an earlier model.
  if (const std::set<std::string> named = shards_named_in(dir); !named.empty())
    std::erase_if(files, [&](const fs::path& path) {
      const std::string name = path.filename().string();
      return is_shard_name(name) && !named.contains(name);
    });
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> copy_existing(Storage& storage, const fs::path& from, const fs::path& to,
                                       std::span<const char* const> names) {
  std::vector<std::string> copied;
  for (const char* name : names) {
    if (!fs::exists(from / name)) continue;
    copy_file(storage, member_of(from, name), to / name);
    copied.emplace_back(name);
  }
  return copied;
}

ModelFiles ModelFiles::open(const fs::path& dir) {
  require(fs::exists(dir), "model '{}' does not exist; fetch a model from a hub with 'qft fetch OWNER/NAME'", dir.string());
  require_directory(dir, "model");
  ModelFiles model;
  model.dir_ = dir;
  // The order of transformers: safetensors first, and a single file before an index.
  for (const WeightNames& way : kModelWeights) {
    if (!fs::exists(dir / way.file) && !fs::exists(dir / way.index)) continue;
    if (fs::exists(dir / way.file))
      model.add_file(member_of(dir, way.file));
    else
      model.add_shards(member_of(dir, way.index));
    model.warn_unused();
    return model;
  }
  fail("model '{}' has neither {} nor {}, nor their .bin forms: {}", dir.string(), kSingleFile, kIndexFile,
       describe_other_weights(dir));
}

void ModelFiles::add_shards(const fs::path& index_path) {
  const auto weight_map = read_weight_map(index_path);
  std::set<std::string> shards;
  for (const auto& [tensor, file] : weight_map) shards.insert(file);
  for (const std::string& file : shards) {
    require(fs::exists(dir_ / file), "'{}' names the shard '{}', which is missing: is the download complete?",
            index_path.string(), file);
    add_file(member_of(dir_, file), &weight_map);
  }
  for (const auto& [tensor, file] : weight_map) {
    const TensorLocation* location = find(tensor);
    require(location != nullptr && location->file->path().filename() == file,
            "'{}' says that tensor '{}' is in '{}', which does not have it", index_path.string(), tensor, file);
  }
}

void ModelFiles::warn_unused() const {
  std::set<std::string> used;
  for (const auto& file : files_) used.insert(file->path().filename().string());
  if (const std::vector<std::string> others = unused_weights(dir_, used); !others.empty())
    log::warn_once(fmt::format("'{}': the model is read from {}{}; {}{} in the same folder {} not read", dir_.string(),
                               *used.begin(), used.size() > 1 ? fmt::format(" to {}", *used.rbegin()) : "", others.front(),
                               others.size() > 1 ? fmt::format(" and {} more", others.size() - 1) : "",
                               others.size() > 1 ? "are" : "is"));
}

void ModelFiles::add_file(const fs::path& path, const std::map<std::string, std::string>* weight_map) {
  files_.push_back(open_tensor_file(path));
  const TensorFile& file = *files_.back();
  for (const TensorEntry& entry : file.entries()) {
    if (weight_map != nullptr) {
      const auto named = weight_map->find(entry.name);
      if (named != weight_map->end() && named->second != path.filename()) continue;  // the index names another shard
    }
    const auto [it, added] = index_.emplace(entry.name, TensorLocation{&file, &entry});
    require(added, "tensor '{}' is in both '{}' and '{}'", entry.name, it->second.file->path().string(), path.string());
    total_bytes_ += entry.bytes();
  }
}

void ModelFiles::wrap(const std::function<std::unique_ptr<TensorFile>(std::unique_ptr<TensorFile>)>& wrap) {
  for (std::unique_ptr<TensorFile>& file : files_) {
    const TensorFile* const was = file.get();
    file = wrap(std::move(file));
    for (const TensorEntry& entry : file->entries())
      if (TensorLocation& at = index_.at(entry.name); at.file == was) at = {file.get(), &entry};
  }
}

const TensorLocation* ModelFiles::find(std::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &it->second;
}

const TensorLocation& ModelFiles::at(std::string_view name) const {
  const TensorLocation* location = find(name);
  if (location == nullptr) {
    const std::vector<std::string> known = names();
    fail("model '{}' has no tensor '{}' (it has {}, such as '{}'): do config.json and the weights belong together?",
         dir_.string(), name, known.size(), known.empty() ? "" : known.front());
  }
  return *location;
}

void ModelFiles::read(std::string_view name, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const {
  const TensorLocation& location = at(name);
  location.file->read(*location.entry, first_byte, bytes, dst);
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> result;
  result.reserve(index_.size());
  for (const auto& [name, location] : index_) result.push_back(name);
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace qft::io
