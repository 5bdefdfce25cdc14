// Small weight files for tests: fp32; each tensor counts up from its own start.
#pragma once

#include "qft/io/safetensors.h"
#include "qft/io/storage.h"

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

namespace qft::model {

struct TestTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  float first = 0.0F;
};

inline void write_tensors(const std::filesystem::path& path, const std::vector<TestTensor>& tensors) {
  std::vector<io::TensorSpec> specs;
  for (const TestTensor& tensor : tensors) specs.push_back({tensor.name, DType::f32, tensor.shape});
  io::SafetensorsWriter writer(io::posix_storage(), path, specs);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<float> values(specs[i].bytes() / sizeof(float));
    std::iota(values.begin(), values.end(), tensors[i].first);
    writer.append(values.data(), specs[i].bytes());
  }
  writer.finish();
}

}  // namespace qft::model
