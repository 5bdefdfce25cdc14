// Checksums: CRC32C for items and pages, XXH3-128 for files and configurations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace qft {

/// Returns the CRC32C (Castagnoli, RFC 3720) of `bytes` bytes, continued from `seed` (0 to start). Uses SSE4.2 if available.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed = 0);

/// An incremental XXH3-128.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void update(const void* data, std::size_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  /// Returns the hash of all bytes so far as 32 lower-case hex digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the XXH3-128 of a text as 32 hex digits.
std::string hash_hex(std::string_view text);

/// Returns the XXH3-128 of a file's bytes; throws Error with the path if the file cannot be read.
std::string hash_file(const std::filesystem::path& path);

}  // namespace qft
