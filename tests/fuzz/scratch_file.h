// A file that a fuzz target rewrites for every input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace qft::test {

/// A folder in memory if the system has one; removed at exit.
class ScratchFolder {
 public:
  ScratchFolder() {
    const char* const memory = "/dev/shm";
    const std::filesystem::path parent =
        std::filesystem::is_directory(memory) ? std::filesystem::path(memory) : std::filesystem::temp_directory_path();
    std::string name = (parent / "qft-fuzz-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::uint8_t* data, std::size_t size) const {
    std::ofstream out(path_ / name, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace qft::test
