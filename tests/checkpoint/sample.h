// Saves small tensors in slices and reads them back.
#pragma once

#include "qft/checkpoint/checkpoint.h"
#include "qft/checkpoint/writer.h"
#include "qft/comm/communicator.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace qft::test {

/// Returns a slice that is the whole tensor.
inline checkpoint::TensorSlice whole_slice(std::string name, DType dtype, const Shape& shape) {
  const Box box = Box::whole(shape);
  return {std::move(name), dtype, shape, box, 0, box.elements()};
}

/// Returns the tensors of a sample checkpoint: odd sizes, a scalar, an empty one, two dtypes.
inline std::vector<checkpoint::TensorSlice> sample_tensors() {
  return {whole_slice("layers.0.weight", DType::f32, {37, 5}), whole_slice("layers.0.weight.exp_avg", DType::f32, {37, 5}),
          whole_slice("step", DType::i64, {}), whole_slice("empty", DType::f32, {0, 3}), whole_slice("tiny", DType::i64, {2})};
}

/// Returns byte `at` of a tensor's data in version `version`.
inline char sample_byte(const std::string& name, std::uint64_t at, int version) {
  return static_cast<char>(std::hash<std::string>()(name) * 31 + at * 7 + static_cast<std::uint64_t>(version) * 101);
}

/// Returns the slices of rank `rank` of `ranks`: an equal share of each flattened tensor; `storage` holds the bytes.
template <class Slice>
std::vector<Slice> sample_slices(int rank, int ranks, int version, std::vector<std::string>& storage) {
  std::vector<Slice> slices;
  const auto r = static_cast<std::uint64_t>(rank), n = static_cast<std::uint64_t>(ranks);
  for (const checkpoint::TensorSlice& whole : sample_tensors()) {
    Slice slice;
    static_cast<checkpoint::TensorSlice&>(slice) = whole;
    slice.begin = whole.end * r / n;
    slice.end = whole.end * (r + 1) / n;
    if (slice.begin == slice.end && rank + 1 < ranks) continue;
    slices.push_back(slice);
  }
  storage.clear();
  for (Slice& slice : slices) {
    std::string bytes(slice.bytes(), '\0');
    for (std::uint64_t i = 0; i < bytes.size(); ++i)
      bytes[i] = sample_byte(slice.name, slice.begin * size_of(slice.dtype) + i, version);
    storage.push_back(std::move(bytes));
  }
  for (std::size_t i = 0; i < slices.size(); ++i) slices[i].data = storage[i].data();
  return slices;
}

/// Saves version `version` of the sample as step `options.step`, with two plain files of rank 0. Collective.
inline std::filesystem::path save_sample(comm::Communicator& comm, io::Storage& storage, checkpoint::SaveOptions options,
                                         int version) {
  checkpoint::CheckpointWriter writer(comm, storage, std::move(options));
  std::vector<std::string> bytes;
  writer.write_slices(sample_slices<checkpoint::HostSlice>(comm.rank(), comm.size(), version, bytes));
  if (comm.rank() == 0) {
    writer.add_file("trainer_state.json", [&](io::Storage& s, const std::filesystem::path& path) {
      io::write_file(s, path, R"({"epoch": 0.5, "global_step": 7, "log_history": [{"loss": 1.25}]})");
    });
    writer.add_file("adapter_config.json", [](io::Storage& s, const std::filesystem::path& path) {
      io::write_file(s, path,
                     R"({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["v_proj", "q_proj"],
                         "base_model_name_or_path": "models/qwen"})");
    });
  }
  return writer.commit({{"version", version}, {"strategy", "zero2"}, {"global_batch_size", 64}});
}

/// Compares every byte and returns the version that a checkpoint holds; -1 if bytes are wrong.
inline int read_sample(const checkpoint::Checkpoint& checkpoint) {
  const int version = checkpoint.state().at("version").get<int>();
  for (const checkpoint::TensorSlice& tensor : sample_tensors()) {
    checkpoint::HostSlice target;
    static_cast<checkpoint::TensorSlice&>(target) = tensor;
    std::string bytes(tensor.bytes(), '\0');
    target.data = bytes.data();
    checkpoint.read(target);
    for (std::uint64_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != sample_byte(tensor.name, i, version)) return -1;
  }
  return version;
}

}  // namespace qft::test
