// LLaMA-Pro (Wu et al. 2024): a model made deeper by layers that change nothing at first. Needs no LibTorch.
#pragma once

#include "qft/io/storage.h"
#include "qft/model/export.h"

#include <cstdint>
#include <filesystem>

namespace qft::model {

struct ExpandRequest {
  std::filesystem::path base;    // the model's directory; its tokenizer's files are copied
  std::filesystem::path target;  // appears whole or not at all; must not exist, or be empty
  std::int64_t layers = 0;       // how many to put in
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
};

/// Divides the layers into `layers` equal groups and puts behind each a copy of its last layer whose output projections (o_proj,
/// down_proj) are zero, as LLaMA-Factory's script does: FreezeConfig::expanded_layers() finds them. Returns the number of tensors
/// written. Throws ConfigError where the groups are not equal, and where the layers are not all alike.
std::int64_t expand_model(io::Storage& storage, const ExpandRequest& request);

}  // namespace qft::model
