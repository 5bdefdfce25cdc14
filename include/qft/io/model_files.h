// A model directory in Hugging Face layout: config.json and model.safetensors, or
// model.safetensors.index.json and its shards; where it has neither, pytorch_model.bin or its shards. Reading by tensor
// name and byte range, and writing safetensors with a limit on the size of a shard.
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

/// A way to keep weights: in one file, or in those that an index names (null: there is no such way).
struct WeightNames {
  const char* file;
  const char* index;
};
/// Of a model and of an adapter, the preferred first.
inline constexpr std::array kModelWeights = {WeightNames{kSingleFile, kIndexFile},
                                             WeightNames{"pytorch_model.bin", "pytorch_model.bin.index.json"}};
inline constexpr std::array kAdapterWeights = {WeightNames{"adapter_model.safetensors", nullptr},
                                               WeightNames{"adapter_model.bin", nullptr}};
/// Of a reward model's value head, beside an adapter or a model; LLaMA-Factory's names.
inline constexpr std::array kValueHeadFiles = {"value_head.safetensors", "value_head.bin"};

/// Beside the weights; the other files there are those of io/companion_files.h.
inline constexpr const char* kModelConfigFile = "config.json";

/// Copies those of `names` that `from` has, synced; returns their names.
std::vector<std::string> copy_existing(Storage& storage, const std::filesystem::path& from, const std::filesystem::path& to,
                                       std::span<const char* const> names);

/// True where `dir` has a model's file of weights, or an index of them.
bool holds_model_weights(const std::filesystem::path& dir);
/// The file of an adapter's weights in `dir`, the preferred one; its preferred name where there is none.
std::filesystem::path adapter_weights_of(const std::filesystem::path& dir);
/// The file of a value head in `dir`, the preferred one; empty where there is none.
std::filesystem::path value_head_of(const std::filesystem::path& dir);
/// The files of `dir` that hold weights, whatever they belong to, sorted: safetensors files; where there are none, those named
/// as the .bin files of models and adapters, shards among them.
std::vector<std::filesystem::path> weight_files(const std::filesystem::path& dir);

/// Where a tensor is.
struct TensorLocation {
  const TensorFile* file = nullptr;
  const TensorEntry* entry = nullptr;
};

/// The weights of a model directory, headers read and checked, data read on demand. Immutable, thread-safe.
class ModelFiles {
 public:
  /// Throws Error where `dir` is no local directory, has no weights that qft reads (naming what it has instead
  /// and how to convert), or where index and shards disagree: a shard missing or truncated, a tensor of the
  /// index that its shard lacks, an index that names files outside the directory. Warns of other copies of the weights in it.
  static ModelFiles open(const std::filesystem::path& dir);

  /// nullptr where there is none. Valid as long as this object.
  const TensorLocation* find(std::string_view name) const;
  /// Throws Error naming the directory and what it has.
  const TensorLocation& at(std::string_view name) const;
  /// Bytes [first_byte, first_byte + bytes) of a tensor.
  void read(std::string_view name, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const;

  /// All tensor names, sorted.
  std::vector<std::string> names() const;
  std::size_t size() const { return index_.size(); }
  /// Of all tensors, without headers.
  std::uint64_t total_bytes() const { return total_bytes_; }
  const std::filesystem::path& dir() const { return dir_; }
  const std::vector<std::unique_ptr<TensorFile>>& files() const { return files_; }
  /// Puts what `wrap` makes of each file in its place: one with the same entries that gives other bytes. Locations that were
  /// handed out before end here.
  void wrap(const std::function<std::unique_ptr<TensorFile>(std::unique_ptr<TensorFile>)>& wrap);

 private:
  ModelFiles() = default;
  /// `weight_map`: of an index, which decides where a tensor is that several shards have; null: there is none.
  void add_file(const std::filesystem::path& path, const std::map<std::string, std::string>* weight_map = nullptr);
  /// Warns of other weights in the folder.
  void tell_unused() const;
  void add_shards(const std::filesystem::path& index_path);

  std::filesystem::path dir_;
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::unordered_map<std::string, TensorLocation> index_;
  std::uint64_t total_bytes_ = 0;
};

/// One file of a model: tensors in the order given, and its XXH3-128 once written.
struct ModelShard {
  std::string file;
  std::vector<TensorSpec> tensors;
  std::uint64_t data_bytes = 0;
  std::string checksum;
  bool mine = true;  ///< this writer's
};
/// How the tensors lie in files of at most `max_shard_bytes`, for number `writer` of `writers`; see ModelWriter.
std::vector<ModelShard> plan_shards(std::vector<TensorSpec> tensors, std::uint64_t max_shard_bytes, int writer, int writers);

/// Writes a model's tensors into `dir` as model.safetensors, or, above `max_shard_bytes` (decimal: 5 GB is
/// 5e9), as model-0000k-of-0000n.safetensors with model.safetensors.index.json. A tensor is never split.
/// config.json and the tokenizer are the caller's. Not atomic by itself: write into CommitDir::temp().
class ModelWriter {
 public:
  /// Several writers may share the work: number `writer` of `writers` writes every writers-th shard, the first one the
  /// index too; all count all bytes.
  ModelWriter(Storage& storage, std::filesystem::path dir, std::vector<TensorSpec> tensors, std::uint64_t max_shard_bytes,
              Metadata metadata = {{"format", "pt"}}, int writer = 0, int writers = 1);
  ~ModelWriter();
  /// The next bytes of the tensors in the order given; calls need not end where tensors or shards end. `data` may be null
  /// where they are another writer's.
  void append(const void* data, std::uint64_t bytes);
  /// Checks that all bytes came, finishes the last shard and writes the index.
  void finish();

  /// The files (names in `dir`).
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
