// Names of unfinished and outgoing checkpoints. Private to checkpoint.
#pragma once

#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::checkpoint {

/// The meaning of a name in an output directory that is not a checkpoint's.
enum class Unfinished { none, save, removal };
Unfinished classify(const std::string& name);

/// Returns the step in a name from set_aside(); nullopt for any other name.
std::optional<std::int64_t> step_aside(std::string_view name);

/// Returns the temporary names in `output_dir`.
std::vector<std::string> list_unfinished(io::Storage& storage, const std::filesystem::path& output_dir);
/// Returns the id of the save that a temporary name belongs to; empty for a removal.
std::string owner_of(std::string_view unfinished);
/// Removes and logs the temporary directories `names`; their runs must be dead.
void remove_unfinished(io::Storage& storage, const std::filesystem::path& output_dir, const std::vector<std::string>& names);

/// Removes a checkpoint or its remains. Renames it first: an interrupted removal must not leave half a checkpoint under its name.
void remove_aside(io::Storage& storage, const std::filesystem::path& dir);

/// Makes room for checkpoint `dir` if another branch's or a damaged one has its name: renames that one to
/// abandoned-checkpoint-<step>-<run>. Throws Error if the directory in the way is not qft's.
void set_aside(io::Storage& storage, const std::filesystem::path& dir);

}  // namespace qft::checkpoint
