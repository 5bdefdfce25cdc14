#include "qft/inputs/staged.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/log.h"
#include "qft/core/random_id.h"
#include "qft/core/units.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <ctime>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qft::inputs {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kManifest = ".qft-staged.json";
constexpr const char* kBegun = "tmp-qft-";  // how names of copies on their way begin

/// A copy in the folder, as its manifest says.
struct Copy {
  fs::path folder;
  StagedItem item;
  bool whole = false;
  std::time_t used = 0;  // the manifest's time: set at each use
};

std::optional<Copy> copy_at(const fs::path& folder) {
  const fs::path manifest = folder / kManifest;
  struct stat status{};
  if (stat(manifest.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  try {
    const json j = io::read_json(manifest);
    return Copy{folder, staged_item_of(j.at("item")), j.at("whole").get<bool>(), status.st_mtime};
  } catch (const std::exception&) {  // no manifest of ours
    return std::nullopt;
  }
}

std::vector<Copy> copies_in(const fs::path& dir) {
  std::vector<Copy> copies;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(dir, code))
    if (entry.is_directory(code) && !entry.is_symlink(code))
      if (auto copy = copy_at(entry.path())) copies.push_back(std::move(*copy));
  std::ranges::sort(copies, {}, &Copy::used);
  return copies;
}

/// A descriptor of the manifest with this lock; -1 where another process has one against it.
int lock_of(const fs::path& folder, int kind) {
  const int fd = open((folder / kManifest).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  if (flock(fd, kind | LOCK_NB) == 0) return fd;
  close(fd);
  return -1;
}

/// Removes the files that the manifest names; false where a process uses them.
bool remove(const Copy& copy) {
  const int fd = lock_of(copy.folder, LOCK_EX);
  if (fd < 0) return false;
  std::error_code code;
  for (const StagedFile& file : copy.item.files) fs::remove(copy.folder / file.path, code);
  fs::remove(copy.folder / kManifest, code);
  for (const StagedFile& file : copy.item.files)
    for (fs::path at = (copy.folder / file.path).parent_path(); at != copy.folder && fs::remove(at, code);) at = at.parent_path();
  if (!fs::remove(copy.folder, code)) log::warn("'{}' holds files that are not qft's: they stay", copy.folder.string());
  close(fd);
  return true;
}

void write_manifest(const fs::path& folder, const StagedItem& item, bool whole) {
  io::atomic_write_file(io::posix_storage(), folder / kManifest, json{{"whole", whole}, {"item", to_json(item)}}.dump(1) + "\n");
}

std::int64_t changed_at(const struct stat& status) {
  return status.st_mtim.tv_sec * INT64_C(1'000'000'000) + status.st_mtim.tv_nsec;
}

bool is_unchanged(const Copy& copy) {
  return std::ranges::all_of(copy.item.files, [&](const StagedFile& file) {
    struct stat status{};
    return stat((copy.folder / file.path).c_str(), &status) == 0 && static_cast<std::uint64_t>(status.st_size) == file.bytes &&
           changed_at(status) == file.changed;
  });
}

std::string bytes_of(std::uint64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

}  // namespace

std::uint64_t StagedItem::bytes() const {
  std::uint64_t total = 0;
  for (const StagedFile& file : files) total += file.bytes;
  return total;
}

std::string StagedItem::folder() const {
  std::string state = source.string();
  for (const StagedFile& file : files) state += fmt::format("\n{} {} {}", file.path, file.bytes, file.changed);
  return fmt::format("{}-{}", name, hash_hex(state).substr(0, 16));
}

json to_json(const StagedItem& item) {
  json files = json::array();
  for (const StagedFile& f : item.files)
    files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"changed", f.changed}, {"hash", f.hash}});
  return {{"name", item.name}, {"source", item.source.string()}, {"is_file", item.is_file}, {"files", files}};
}

StagedItem staged_item_of(const json& j) {
  StagedItem item{j.at("name").get<std::string>(), j.at("source").get<std::string>(), j.at("is_file").get<bool>(), {}};
  for (const json& f : j.at("files")) {
    StagedFile file{f.at("path").get<std::string>(), f.at("bytes").get<std::uint64_t>(), f.at("changed").get<std::int64_t>(),
                    f.at("hash").get<std::string>()};
    const fs::path path = file.path;
    require(!path.is_absolute() && std::ranges::find(path, fs::path("..")) == path.end(), "'{}' leads out of its folder",
            file.path);
    item.files.push_back(std::move(file));
  }
  return item;
}

StageFolder::StageFolder(fs::path dir, std::uint64_t limit) : dir_(std::move(dir)), limit_(limit) {
  io::posix_storage().create_directory(dir_);
}

StageFolder::~StageFolder() {
  for (const int fd : held_) close(fd);
}

void StageFolder::hold(const fs::path& copy) {
  const int fd = lock_of(copy, LOCK_SH);
  if (fd < 0) return;  // a file system without locks: who prunes there decides
  held_.push_back(fd);
  utimensat(AT_FDCWD, (copy / kManifest).c_str(), nullptr, 0);  // used now
}

std::optional<fs::path> StageFolder::find(const StagedItem& item) {
  const auto copy = copy_at(dir_ / item.folder());
  if (!copy) return std::nullopt;
  if (copy->whole && is_unchanged(*copy)) {
    hold(copy->folder);
    return copy->folder;
  }
  log::warn("the copy '{}' was changed since it was made: it is made anew", copy->folder.string());
  require(remove(*copy), "the copy '{}' was changed, and another process uses it: end that, or name another stage_to",
          copy->folder.string());
  return std::nullopt;
}

fs::path StageFolder::begin(const StagedItem& item) {
  const std::uint64_t needed = item.bytes();
  require(limit_ == 0 || needed <= limit_, "{} has {}, and stage_limit allows {} in '{}': raise it, or leave stage_to out",
          item.source.string(), bytes_of(needed), bytes_of(limit_), dir_.string());
  std::vector<Copy> copies = copies_in(dir_);
  std::uint64_t there = 0;
  for (const Copy& copy : copies) there += copy.item.bytes();
  const auto has_room = [&] {
    return (limit_ == 0 || there + needed <= limit_) && needed + needed / 100 <= fs::space(dir_).available;
  };
  for (const Copy& copy : copies) {
    if (has_room()) break;
    if (!remove(copy)) continue;
    there -= copy.item.bytes();
    log::info("removed the copy '{}' ({}), used longest ago, to make room", copy.folder.string(), bytes_of(copy.item.bytes()));
  }
  require(has_room(), "no room in '{}' for {} of {}: the disk has {} free, {} are other copies in use{}", dir_.string(),
          bytes_of(needed), item.source.string(), bytes_of(fs::space(dir_).available), bytes_of(there),
          limit_ == 0 ? "" : fmt::format(", stage_limit is {}", bytes_of(limit_)));
  const fs::path made = dir_ / (kBegun + random_hex(12));
  io::posix_storage().create_directory(made);
  write_manifest(made, item, false);
  hold(made);
  return made;
}

fs::path StageFolder::commit(const StagedItem& item, const fs::path& made) {
  write_manifest(made, item, true);
  const fs::path final = dir_ / item.folder();
  std::error_code code;
  fs::rename(made, final, code);
  if (code) {  // another job was faster
    const auto theirs = find(item);
    require(theirs.has_value(), "cannot rename '{}' to '{}': {}", made.string(), final.string(), code.message());
    drop(made);
    return *theirs;
  }
  io::posix_storage().sync_directory(dir_);
  hold(final);
  return final;
}

void StageFolder::drop(const fs::path& made) noexcept {
  try {
    io::remove_tree(io::posix_storage(), made);
  } catch (const std::exception& e) {  // a disk that fails: the other nodes must hear of the first error
    log::warn("left '{}' behind: {}", made.string(), e.what());
  }
}

std::vector<Pruned> prune(const fs::path& dir, std::chrono::seconds age) {
  require(fs::is_directory(dir), "there is no folder '{}' to prune", dir.string());
  std::vector<Pruned> pruned;
  const std::time_t now = std::time(nullptr);
  for (const Copy& copy : copies_in(dir)) {
    if (now - copy.used < age.count()) continue;
    if (remove(copy))
      pruned.push_back({copy.folder, copy.item.bytes()});
    else
      log::info("'{}' is in use: it stays", copy.folder.string());
  }
  return pruned;
}

}  // namespace qft::inputs
