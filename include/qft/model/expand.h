// LLaMA-Pro (Wu et al. 2024): makes a model deeper by inserting layers that initially change nothing. Needs no LibTorch.
#pragma once

#include "qft/io/storage.h"
#include "qft/model/export.h"

#include <cstdint>
#include <filesystem>

namespace qft::model {

struct ExpandRequest {
  std::filesystem::path base;    // the model's directory; its tokenizer's files are copied
  std::filesystem::path target;  // appears complete or not at all; must be empty or not exist
  std::int64_t layers = 0;       // number of layers to insert
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
};

/// Divides the layers into `layers` equal groups and inserts, after each group, a copy of its last layer with zero output
/// projections (o_proj, down_proj), like LLaMA-Factory's script. FreezeConfig::expanded_layers() finds the inserted layers.
/// Returns the number of tensors written. Throws ConfigError if the groups are not equal or the layers differ in structure.
std::int64_t expand_model(io::Storage& storage, const ExpandRequest& request);

}  // namespace qft::model
