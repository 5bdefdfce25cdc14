// The first bytes of a file that is on its way, and their digest.
#pragma once

#include "qft/net/digest.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "api.h"

namespace qft::hub {

class PartFile {
 public:
  /// Opens what is there of it, and reads it for the digest; what cannot be its beginning, or is of a file whose hash nobody
  /// states, is dropped. Throws Error.
  PartFile(std::filesystem::path path, const RemoteFile& file);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  std::uint64_t size() const { return size_; }
  /// Throws Error where the disk takes no more.
  void append(std::string_view bytes);
  /// Starts from nothing, in another file: where there are no locks, another process may write to the old one.
  void clear();
  /// All bytes are here: compares them with what the hub states, and gives the file the name `whole`, durably. Where they
  /// differ, removes it and returns the digest that was found. Throws Error where another process replaced the file.
  std::optional<std::string> finish(const std::filesystem::path& whole);

 private:
  void open_file(int flags);
  std::filesystem::path path_;
  const RemoteFile& file_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::optional<net::Digest> digest_;
};

}  // namespace qft::hub
