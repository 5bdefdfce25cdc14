// Compares two checkpoints, adapters or models.
#pragma once

#include "qft/core/dtype.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::checkpoint {

/// Compares a tensor that both directories have.
struct TensorDifference {
  std::string name;
  DType dtype[2] = {};
  std::vector<std::int64_t> shape[2];
  std::uint64_t elements = 0;  // in A
  std::uint64_t changed = 0;   // elements with different values; not counted if the shapes differ
  double max_abs = 0;          // largest |a - b|; not finite if only one of a and b is finite
  double relative = 0;         // |a - b| / |a|, both Euclidean norms; 0 for equal tensors, infinite for a = 0

  bool same_layout() const { return shape[0] == shape[1] && dtype[0] == dtype[1]; }
  bool equal() const { return same_layout() && changed == 0; }
};

/// A configuration or state value that differs; null on the side that lacks it.
struct ValueDifference {
  std::string key;  // "data.epoch"
  nlohmann::json a, b;
};

struct Difference {
  std::filesystem::path a, b;
  std::vector<TensorDifference> tensors;  // all common tensors, by name
  std::vector<std::string> only_a, only_b;
  std::vector<ValueDifference> model;          // config.json, adapter_config.json: keys that change the model's output
  std::vector<ValueDifference> position;       // step, place in the data, batches, counters
  std::vector<ValueDifference> configuration;  // the run's settings
  std::vector<ValueDifference> layout;         // strategy, ranks, versions at the time of writing

  /// True if tensors, model and position are equal: under one configuration, resuming from A or from B gives the same run.
  /// Elapsed time, configuration and layout do not count.
  bool equal() const;
  /// True if nothing differs, configuration and layout included.
  bool identical() const { return equal() && configuration.empty() && layout.empty(); }
};

/// Compares by name, independent of the ranks and strategies that wrote the two. Holds one piece of a tensor in memory at a time.
/// Throws Error if one of them cannot be read.
Difference diff(const std::filesystem::path& a, const std::filesystem::path& b);

/// Returns the keys equal, identical, a, b, tensors [{name, shape, dtype, elements, changed, max_abs, relative}] (shape and dtype
/// as pairs if they differ; numbers that JSON lacks as text), only_a, only_b, and the lists of values.
nlohmann::ordered_json to_json(const Difference& difference);
/// Returns lines of text. Lists the `rows` differing tensors with the largest relative difference.
std::string format_difference(const Difference& difference, std::size_t rows);

}  // namespace qft::checkpoint
