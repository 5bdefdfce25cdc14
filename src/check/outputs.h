// Folders that are written. Private to check.
#pragma once

#include <cstdint>
#include <filesystem>

namespace qft::check {

/// The folder itself, or the nearest one above it that exists: where it would be created.
std::filesystem::path existing_folder(std::filesystem::path path);

/// What an ordinary user may still write there; -1: unknown.
struct Room {
  std::int64_t bytes = 0, files = 0;
};
Room room_in(const std::filesystem::path& folder);

}  // namespace qft::check
