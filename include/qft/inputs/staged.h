// Copies on a node's own disk: which there are, whether they are still right, and what goes when there is no room.
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
  std::string path;  ///< in the folder
  std::uint64_t bytes = 0;
  std::int64_t changed = 0;  ///< of the original: ns since 1970
  std::string hash = {};     ///< XXH3-128, once it was read
  std::int64_t copied = 0;   ///< of the copy, as its disk keeps times
};

/// A folder or file that is copied.
struct StagedItem {
  std::string name;              ///< for people: "Qwen3-8B"
  std::filesystem::path source;  ///< where the original is
  bool is_file = false;          ///< `source` is the one file
  std::vector<StagedFile> files;

  std::uint64_t bytes() const;
  /// The copy's folder: the name and what tells this state of these files from others.
  std::string folder() const;
};
nlohmann::json to_json(const StagedItem& item);
StagedItem staged_item_of(const nlohmann::json& json);

/// While it lives no other process on this node makes the copy.
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

/// One folder of copies, on this node's own disk. Each copy has a manifest; what has none is not qft's and is never touched. A
/// process holds the copies that it uses: others do not remove them. One thread at a time.
class StageFolder {
 public:
  /// Makes the folder. Throws Error. `limit`: bytes that all copies may have; 0: what the disk has.
  StageFolder(std::filesystem::path dir, std::uint64_t limit);
  ~StageFolder();
  StageFolder(const StageFolder&) = delete;
  StageFolder& operator=(const StageFolder&) = delete;

  /// The copy, whole and with the sizes and times that its manifest states, which this process holds from now on; one that was
  /// changed is removed.
  std::optional<std::filesystem::path> find(const StagedItem& item);
  /// The right to make the copy; none while another process has it.
  std::unique_ptr<StageClaim> claim(const StagedItem& item);
  /// Makes room, the longest unused first, and an empty folder for the copy. Throws Error, and removes nothing that is whole,
  /// where there is no room.
  std::filesystem::path begin(const StagedItem& item);
  /// The copy is in the folder that begin() gave: gives it its name (another one where that is taken), durably, and holds
  /// it.
  std::filesystem::path commit(const StagedItem& item, const std::filesystem::path& made);
  /// Removes what begin() gave; what cannot be removed is left, with a warning.
  static void drop(const std::filesystem::path& made) noexcept;

 private:
  void hold(int fd);
  std::vector<std::filesystem::path> names_of(const StagedItem& item) const;
  void make_room(std::uint64_t needed, const std::filesystem::path& source) const;
  std::filesystem::path dir_;
  std::uint64_t limit_;
  std::vector<int> held_;
};

/// A copy that was removed.
struct Pruned {
  std::filesystem::path folder;
  std::uint64_t bytes = 0;
};
/// Removes the copies that nobody uses and nobody has used for `age`, and, whatever its age, what killed processes began. Throws
/// Error.
std::vector<Pruned> prune(const std::filesystem::path& dir, std::chrono::seconds age);

}  // namespace qft::inputs
