// What two checkpoints, adapters or models have in common, and where they differ.
#pragma once

#include "qft/core/dtype.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::checkpoint {

/// A tensor that both directories have.
struct TensorDifference {
  std::string name;
  DType dtype[2] = {};
  std::vector<std::int64_t> shape[2];
  std::uint64_t elements = 0;  // of A
  std::uint64_t changed = 0;   // elements whose values differ; not counted where the shapes differ
  double max_abs = 0;          // largest |a - b|; not finite where only one of the two is
  double relative = 0;         // |a - b| / |a|, both Euclidean norms; 0 for equal tensors, infinite for a = 0

  bool same_layout() const { return shape[0] == shape[1] && dtype[0] == dtype[1]; }
  bool equal() const { return same_layout() && changed == 0; }
};

/// A value of a configuration or state that is not the same; null on the side that lacks it.
struct ValueDifference {
  std::string key;  // "data.epoch"
  nlohmann::json a, b;
};

struct Difference {
  std::filesystem::path a, b;
  std::vector<TensorDifference> tensors;  // all that both have, by name
  std::vector<std::string> only_a, only_b;
  std::vector<ValueDifference> model;          // config.json, adapter_config.json: what changes the model's output
  std::vector<ValueDifference> position;       // step, place in the data, batches, counters
  std::vector<ValueDifference> configuration;  // the run's settings
  std::vector<ValueDifference> layout;         // strategy, ranks, versions: how it was written

  /// Same tensors, same model, same position: resuming from A or from B gives the same run under the same
  /// configuration. Elapsed time, configuration and layout do not count.
  bool equal() const;
  /// Nothing differs, configuration and layout included.
  bool identical() const { return equal() && configuration.empty() && layout.empty(); }
};

/// Compares by name, whatever ranks and strategies wrote the two, a piece of a tensor in memory at a time.
/// Throws Error where one of them cannot be read.
Difference diff(const std::filesystem::path& a, const std::filesystem::path& b);

/// Keys equal, identical, a, b, tensors [{name, shape, dtype, elements, changed, max_abs, relative}] (shape
/// and dtype as pairs where they differ; numbers that JSON lacks as text), only_a, only_b, and the lists of values.
nlohmann::ordered_json to_json(const Difference& difference);
/// Lines of text; of the tensors that differ the `rows` with the largest relative difference.
std::string format_difference(const Difference& difference, std::size_t rows);

}  // namespace qft::checkpoint
