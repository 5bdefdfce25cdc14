// A model directory in Hugging Face layout: config.json, and model.safetensors or model.safetensors.index.json with its shards;
// if it has neither, pytorch_model.bin or its shards. Reads by tensor name and byte range; writes safetensors with a limit on
// shard size.
#pragma once

#include "qft/io/safetensors.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace qft::io {

inline constexpr const char* kSingleFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

/// One way to store weights: in one file, or in the shards that an index names (null: no such form).
struct WeightNames {
  const char* file;
  const char* index;
};
/// The ways to store a model's and an adapter's weights, the preferred first.
inline constexpr std::array kModelWeights = {WeightNames{kSingleFile, kIndexFile},
                                             WeightNames{"pytorch_model.bin", "pytorch_model.bin.index.json"}};
inline constexpr std::array kAdapterWeights = {WeightNames{"adapter_model.safetensors", nullptr},
                                               WeightNames{"adapter_model.bin", nullptr}};
/// Files of a reward model's value head, beside an adapter or a model, with LLaMA-Factory's names.
inline constexpr std::array kValueHeadFiles = {"value_head.safetensors", "value_head.bin"};

/// Stands beside the weights; io/companion_files.h names the other files.
inline constexpr const char* kModelConfigFile = "config.json";

/// Copies those of `names` that `from` has and syncs them; returns their names.
std::vector<std::string> copy_existing(Storage& storage, const std::filesystem::path& from, const std::filesystem::path& to,
                                       std::span<const char* const> names);

/// True if `dir` has a model's weight file or an index of weight shards.
bool holds_model_weights(const std::filesystem::path& dir);
/// Returns the preferred adapter weight file in `dir`; if there is none, the path of the preferred name.
std::filesystem::path adapter_weights_of(const std::filesystem::path& dir);
/// Returns the preferred value head file in `dir`; empty if there is none.
std::filesystem::path value_head_of(const std::filesystem::path& dir);
/// Returns the files of `dir` that hold weights of any kind, sorted: the safetensors files; if there are none, the files with the
/// .bin names of models and adapters, including shards.
std::vector<std::filesystem::path> weight_files(const std::filesystem::path& dir);

/// The location of a tensor.
struct TensorLocation {
  const TensorFile* file = nullptr;
  const TensorEntry* entry = nullptr;
};

/// The weights of a model directory: headers are read and checked, data is read on demand. Immutable, thread-safe.
class ModelFiles {
 public:
  /// Throws Error if `dir` is not a local directory, or has no weights that qft reads (the message names the weights it has and
  /// how to convert them). Also throws if index and shards disagree: a missing or truncated shard, a tensor of the index that
  /// its shard lacks, an index that names files outside the directory. Warns of other copies of the weights in `dir`.
  static ModelFiles open(const std::filesystem::path& dir);

  /// Returns nullptr if there is no such tensor. The pointer is valid as long as this object.
  const TensorLocation* find(std::string_view name) const;
  /// Throws Error with the directory and its tensors if there is no such tensor.
  const TensorLocation& at(std::string_view name) const;
  /// Copies bytes [first_byte, first_byte + bytes) of a tensor to `dst`.
  void read(std::string_view name, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const;

  /// Returns all tensor names, sorted.
  std::vector<std::string> names() const;
  std::size_t size() const { return index_.size(); }
  /// Bytes of all tensors, without headers.
  std::uint64_t total_bytes() const { return total_bytes_; }
  const std::filesystem::path& dir() const { return dir_; }
  const std::vector<std::unique_ptr<TensorFile>>& files() const { return files_; }
  /// Replaces each file by wrap(file), which must have the same entries but may return other bytes. Invalidates all locations
  /// returned before.
  void wrap(const std::function<std::unique_ptr<TensorFile>(std::unique_ptr<TensorFile>)>& wrap);

 private:
  ModelFiles() = default;
  /// `weight_map`: an index's map, which decides between several shards that have a tensor; null: no index.
  void add_file(const std::filesystem::path& path, const std::map<std::string, std::string>* weight_map = nullptr);
  /// Warns of other weights in the folder.
  void warn_unused() const;
  void add_shards(const std::filesystem::path& index_path);

  std::filesystem::path dir_;
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::unordered_map<std::string, TensorLocation> index_;
  std::uint64_t total_bytes_ = 0;
};

/// One file of a model: its tensors in order, and its XXH3-128 once written.
struct ModelShard {
  std::string file;
  std::vector<TensorSpec> tensors;
  std::uint64_t data_bytes = 0;
  std::string checksum;
  bool mine = true;  ///< this writer writes the shard
};
/// Distributes the tensors over files of at most `max_shard_bytes`, for writer number `writer` of `writers`; see ModelWriter.
std::vector<ModelShard> plan_shards(std::vector<TensorSpec> tensors, std::uint64_t max_shard_bytes, int writer, int writers);

/// Writes a model's tensors into `dir` as model.safetensors, or, above `max_shard_bytes` (decimal: 5 GB is 5e9), as
/// model-0000k-of-0000n.safetensors with model.safetensors.index.json. A tensor is never split. The caller must write config.json
/// and the tokenizer. Not atomic: write into CommitDir::temp().
class ModelWriter {
 public:
  /// Several writers may share the work: writer number `writer` of `writers` writes every writers-th shard, the first one also
  /// the index. All of them count all bytes.
  ModelWriter(Storage& storage, std::filesystem::path dir, std::vector<TensorSpec> tensors, std::uint64_t max_shard_bytes,
              Metadata metadata = {{"format", "pt"}}, int writer = 0, int writers = 1);
  ~ModelWriter();
  /// Appends the next bytes of the tensors in the given order; calls need not end at ends of tensors or shards. `data` may be
  /// null for bytes that another writer writes.
  void append(const void* data, std::uint64_t bytes);
  /// Throws Error unless all bytes were given; finishes the last shard and writes the index.
  void finish();

  /// The files, with their names in `dir`.
  const std::vector<ModelShard>& shards() const { return shards_; }

 private:
  void begin_shard();
  void end_shard();
  void write_index() const;

  Storage& storage_;
  std::filesystem::path dir_;
  Metadata metadata_;
  std::vector<ModelShard> shards_;
  std::size_t current_ = 0;
  std::uint64_t written_in_shard_ = 0;
  std::unique_ptr<SafetensorsWriter> writer_;
};

}  // namespace qft::io
