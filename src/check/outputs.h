// Inspects output folders. Private to check.
#pragma once

#include <cstdint>
#include <filesystem>

namespace qft::check {

/// Returns the folder itself or its nearest existing parent, in which it would be created.
std::filesystem::path existing_folder(std::filesystem::path path);

/// What an ordinary user can still write; -1: unknown.
struct Room {
  std::int64_t bytes = 0, files = 0;
};
Room room_in(const std::filesystem::path& folder);

}  // namespace qft::check
