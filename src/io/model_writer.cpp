#include "qft/core/error.h"
#include "qft/io/model_files.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

namespace qft::io {

namespace fs = std::filesystem;

std::vector<ModelShard> plan_shards(std::vector<TensorSpec> tensors, std::uint64_t max_shard_bytes, int writer, int writers) {
  std::vector<ModelShard> shards(1);
  for (TensorSpec& tensor : tensors) {
    if (!shards.back().tensors.empty() && shards.back().data_bytes + tensor.bytes() > max_shard_bytes) shards.emplace_back();
    shards.back().data_bytes += tensor.bytes();
    shards.back().tensors.push_back(std::move(tensor));
  }
  for (std::size_t k = 0; k < shards.size(); ++k) {
    shards[k].file = shards.size() == 1 ? kSingleFile : fmt::format("model-{:05}-of-{:05}.safetensors", k + 1, shards.size());
    shards[k].mine = k % static_cast<std::size_t>(writers) == static_cast<std::size_t>(writer);
  }
  return shards;
}

ModelWriter::ModelWriter(Storage& storage, fs::path dir, std::vector<TensorSpec> tensors, std::uint64_t max_shard_bytes,
                         Metadata metadata, int writer, int writers)
    : storage_(storage), dir_(std::move(dir)), metadata_(std::move(metadata)) {
  std::set<std::string_view> names;
  for (const TensorSpec& tensor : tensors) require(names.insert(tensor.name).second, "tensor '{}' is given twice", tensor.name);
  shards_ = plan_shards(std::move(tensors), max_shard_bytes, writer, writers);
  begin_shard();
}

ModelWriter::~ModelWriter() = default;

void ModelWriter::begin_shard() {
  const ModelShard& shard = shards_[current_];
  writer_.reset();
  if (shard.mine) writer_ = std::make_unique<SafetensorsWriter>(storage_, dir_ / shard.file, shard.tensors, metadata_);
  written_in_shard_ = 0;
}

void ModelWriter::end_shard() {
  if (!writer_) return;
  writer_->finish();
  shards_[current_].checksum = writer_->checksum();
}

void ModelWriter::append(const void* data, std::uint64_t bytes) {
  const auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    if (written_in_shard_ == shards_[current_].data_bytes && current_ + 1 < shards_.size()) {
      end_shard();
      ++current_;
      begin_shard();
      continue;
    }
    const std::uint64_t room = shards_[current_].data_bytes - written_in_shard_;
    // The last shard's writer rejects surplus bytes, with the numbers.
    const std::uint64_t part = current_ + 1 < shards_.size() ? std::min(bytes, room) : bytes;
    if (writer_) {
      QFT_ASSERT(p != nullptr, "no data for '{}', a shard of this writer", shards_[current_].file);
      writer_->append(p, part);
    }
    written_in_shard_ += part;
    if (p != nullptr) p += part;
    bytes -= part;
  }
}

void ModelWriter::finish() {
  // Here begin shards that hold only empty tensors.
  while (written_in_shard_ == shards_[current_].data_bytes && current_ + 1 < shards_.size()) {
    end_shard();
    ++current_;
    begin_shard();
  }
  end_shard();
  if (shards_.size() > 1 && shards_.front().mine) write_index();
}

void ModelWriter::write_index() const {
  nlohmann::json weight_map = nlohmann::json::object();
  std::uint64_t total_size = 0;
  for (const ModelShard& shard : shards_) {
    total_size += shard.data_bytes;
    for (const TensorSpec& tensor : shard.tensors) weight_map[tensor.name] = shard.file;
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total_size}}}, {"weight_map", weight_map}};
  atomic_write_file(storage_, dir_ / kIndexFile, index.dump(2) + "\n");
}

}  // namespace qft::io
