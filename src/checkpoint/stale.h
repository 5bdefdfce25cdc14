// Names of what is not a checkpoint yet, or no longer. Private to checkpoint.
#pragma once

#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::checkpoint {

/// What a name in an output directory stands for besides a checkpoint.
enum class Unfinished { none, save, removal };
Unfinished classify(const std::string& name);

/// The step in a name that set_aside() gives; nothing for any other.
std::optional<std::int64_t> step_aside(std::string_view name);

/// The temporary names in `output_dir`.
std::vector<std::string> list_unfinished(io::Storage& storage, const std::filesystem::path& output_dir);
/// The save that a temporary name is of; empty for a removal.
std::string owner_of(std::string_view unfinished);
/// Removes them, and says so: their runs are gone.
void remove_unfinished(io::Storage& storage, const std::filesystem::path& output_dir, const std::vector<std::string>& names);

/// Removes a checkpoint or what is left of one. It loses its name first: a removal that is cut off must not leave half
/// of it where someone looks for it.
void remove_aside(io::Storage& storage, const std::filesystem::path& dir);

/// Makes room for a checkpoint `dir` where another branch's, or a damaged one, has its name: that is called
/// abandoned-checkpoint-<step>-<run> from there on. Throws Error where what is there is not qft's.
void set_aside(io::Storage& storage, const std::filesystem::path& dir);

}  // namespace qft::checkpoint
