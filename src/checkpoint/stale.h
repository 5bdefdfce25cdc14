// Names of what is not a checkpoint yet, or no longer. Private to checkpoint.
#pragma once

#include "qft/io/storage.h"

#include <filesystem>
#include <string>

namespace qft::checkpoint {

/// What a name in an output directory stands for besides a checkpoint.
struct Unfinished {
  enum class What { none, save, removal, replaced } what = What::none;
  std::string target;  // of a replaced one: the name of its checkpoint
};
Unfinished classify(const std::string& name);

/// Removes what earlier runs left in `output_dir` under temporary names.
void remove_stale(io::Storage& storage, const std::filesystem::path& output_dir);

/// Removes a checkpoint or what is left of one. It loses its name first: a removal that is cut off must not leave half
/// of it where someone looks for it.
void remove_aside(io::Storage& storage, const std::filesystem::path& dir);

}  // namespace qft::checkpoint
