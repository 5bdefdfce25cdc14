// Copies on a node's local disk: finds them, checks them, and removes old ones to make room.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::inputs {

struct StagedFile {
  std::string path;  ///< relative to the folder
  std::uint64_t bytes = 0;
  std::int64_t changed = 0;  ///< modification time of the original, in ns since 1970
  std::string hash = {};     ///< XXH3-128; empty before the file is read
  std::int64_t copied = 0;   ///< modification time of the copy, as its disk stores times
};

/// A folder or file to copy.
struct StagedItem {
  std::string name;              ///< for messages: "Qwen3-8B"
  std::filesystem::path source;  ///< the original's path
  bool is_file = false;          ///< `source` is a single file
  std::vector<StagedFile> files;

  std::uint64_t bytes() const;
  /// Returns the name of the copy's folder: the item's name and a hash of the files' state.
  std::string folder() const;
};
nlohmann::json to_json(const StagedItem& item);
StagedItem staged_item_of(const nlohmann::json& json);

/// While a claim exists, no other process on this node makes the copy.
class StageClaim {
 public:
  StageClaim(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~StageClaim();
  StageClaim(const StageClaim&) = delete;
  StageClaim& operator=(const StageClaim&) = delete;

 private:
  std::filesystem::path path_;
  int fd_;
};

/// A folder of copies on this node's local disk. Each copy has a manifest; entries without a manifest do not belong to qft and
/// are never touched. A process holds the copies that it uses, so that others do not remove them. One thread at a time.
class StageFolder {
 public:
  /// Creates the folder. `limit`: maximum bytes of all copies; 0: the disk's size. Throws Error.
  StageFolder(std::filesystem::path dir, std::uint64_t limit);
  ~StageFolder();
  StageFolder(const StageFolder&) = delete;
  StageFolder& operator=(const StageFolder&) = delete;

  /// Returns the folder of a complete copy with the sizes and times in its manifest; this process holds it from now on. Removes a
  /// changed copy.
  std::optional<std::filesystem::path> find(const StagedItem& item);
  /// Returns the right to make the copy; nullptr while another process has it.
  std::unique_ptr<StageClaim> claim(const StagedItem& item);
  /// Removes the least recently used copies to make room, and creates an empty folder for the copy. If there cannot be enough
  /// room, removes no complete copy and throws Error.
  std::filesystem::path begin(const StagedItem& item);
  /// Completes the copy in the folder from begin(): renames it durably to its name (with a suffix if the name is taken) and holds
  /// it. Returns its path.
  std::filesystem::path commit(const StagedItem& item, const std::filesystem::path& made);
  /// Removes the folder from begin(). Leaves files that cannot be removed, with a warning.
  static void drop(const std::filesystem::path& made) noexcept;

 private:
  void hold(int fd);
  std::vector<std::filesystem::path> names_of(const StagedItem& item) const;
  void make_room(std::uint64_t needed, const std::filesystem::path& source) const;
  std::filesystem::path dir_;
  std::uint64_t limit_;
  std::vector<int> held_;
};

/// A removed copy.
struct RemovedCopy {
  std::filesystem::path folder;
  std::uint64_t bytes = 0;
};
/// Removes copies that are not in use and were last used more than `age` ago, and unfinished copies of killed processes of any
/// age. Throws Error.
std::vector<RemovedCopy> prune(const std::filesystem::path& dir, std::chrono::seconds age);

}  // namespace qft::inputs
