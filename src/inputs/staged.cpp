#include "qft/inputs/staged.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/log.h"
#include "qft/core/random_id.h"
#include "qft/core/units.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copies.h"

namespace qft::inputs {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kBegun = "tmp-qft-";  // prefix of unfinished copies
constexpr int kNames = 9;                   // names to try for a copy: files of other programs may have the first one

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
    files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"changed", f.changed}, {"copied", f.copied}, {"hash", f.hash}});
  return {{"name", item.name}, {"source", item.source.string()}, {"is_file", item.is_file}, {"files", files}};
}

StagedItem staged_item_of(const json& j) {
  StagedItem item{j.at("name").get<std::string>(), j.at("source").get<std::string>(), j.at("is_file").get<bool>(), {}};
  for (const json& f : j.at("files")) {
    StagedFile file{f.at("path").get<std::string>(), f.at("bytes").get<std::uint64_t>(), f.at("changed").get<std::int64_t>(),
                    f.at("hash").get<std::string>(), f.value("copied", f.at("changed").get<std::int64_t>())};
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

void StageFolder::hold(int fd) {
  if (fd < 0) return;  // a file system without locks
  held_.push_back(fd);
  futimens(fd, nullptr);  // mark as used now
}

std::vector<fs::path> StageFolder::names_of(const StagedItem& item) const {
  std::vector<fs::path> names{dir_ / item.folder()};
  for (int i = 2; i <= kNames; ++i) names.push_back(names.front().string() + fmt::format("-{}", i));
  return names;
}

std::optional<fs::path> StageFolder::find(const StagedItem& item) {
  for (const fs::path& folder : names_of(item)) {
    const Lock lock = lock_of(folder, LOCK_SH);  // lock first: nobody can remove it from now on
    if (lock.busy) continue;                     // it is being removed
    const auto copy = copy_at(folder);
    if (copy && copy->whole && is_unchanged(*copy)) {
      hold(lock.fd);
      return folder;
    }
    if (lock.fd >= 0) close(lock.fd);
    if (!copy) continue;
    log::warn("the copy '{}' has changed since it was made: making a new copy", folder.string());
    if (!remove(*copy)) log::warn("cannot remove '{}': another process or user has it", folder.string());
  }
  return std::nullopt;
}

std::unique_ptr<StageClaim> StageFolder::claim(const StagedItem& item) {
  const fs::path path = dir_ / fmt::format("{}-claim-{}", kOwnFiles, item.folder());
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return std::make_unique<StageClaim>(path, fd);  // begin() will report the error
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (locked ? io::is_same_file(fd, path) : errno != EWOULDBLOCK && errno != EINTR) return std::make_unique<StageClaim>(path, fd);
  close(fd);
  return nullptr;
}

StageClaim::~StageClaim() {
  if (fd_ < 0) return;
  unlink(path_.c_str());  // unlink first: later opens create a new file
  close(fd_);
}

fs::path StageFolder::begin(const StagedItem& item) {
  const std::uint64_t needed = item.bytes();
  require(limit_ == 0 || needed <= limit_, "{} has {}, but stage_limit allows {} in '{}': raise stage_limit, or remove stage_to",
          item.source.string(), bytes_of(needed), bytes_of(limit_), dir_.string());
  make_room(needed, item.source);
  const fs::path made = dir_ / (kBegun + random_hex(12));
  io::posix_storage().create_directory(made);
  hold(write_manifest(made, item, false));
  return made;
}

void StageFolder::make_room(std::uint64_t needed, const fs::path& source) const {
  std::vector<Copy> copies = copies_in(dir_);
  std::erase_if(copies, [](const Copy& copy) { return !copy.whole && remove(copy); });  // left by killed processes
  std::uint64_t there = 0, may_go = 0;
  for (const Copy& copy : copies) {
    there += copy.item.bytes();
    if (is_free(copy)) may_go += copy.item.bytes();
  }
  const auto has_room = [&](std::uint64_t more) {
    return (limit_ == 0 || there - more + needed <= limit_) && needed + needed / 100 <= fs::space(dir_).available + more;
  };
  for (const Copy& copy : copies) {
    if (has_room(0) || !has_room(may_go)) break;  // remove nothing if it cannot help
    if (!is_free(copy) || !remove(copy)) continue;
    there -= copy.item.bytes();
    may_go -= std::min(may_go, copy.item.bytes());
    log::info("removed the least recently used copy '{}' ({}) to make room", copy.folder.string(), bytes_of(copy.item.bytes()));
  }
  require(has_room(0),
          "no room in '{}' for {} of {}: the disk has {} free, other copies have {}, and {} of these are not in use{}",
          dir_.string(), bytes_of(needed), source.string(), bytes_of(fs::space(dir_).available), bytes_of(there),
          bytes_of(may_go), limit_ == 0 ? "" : fmt::format(", stage_limit is {}", bytes_of(limit_)));
}

fs::path StageFolder::commit(const StagedItem& item, const fs::path& made) {
  StagedItem copied = item;
  for (StagedFile& file : copied.files) {
    struct stat status{};
    require(stat((made / file.path).c_str(), &status) == 0, "cannot read '{}'", (made / file.path).string());
    file.copied = changed_at(status);
  }
  hold(write_manifest(made, copied, true));
  std::error_code code;
  for (const fs::path& name : names_of(item)) {
    fs::rename(made, name, code);
    if (!code) {
      io::posix_storage().sync_directory(dir_);
      return name;
    }
    if (const auto theirs = find(item)) {  // another job was faster
      drop(made);
      return *theirs;
    }
  }
  fail("cannot rename '{}' to '{}': {}", made.string(), names_of(item).front().string(), code.message());
}

void StageFolder::drop(const fs::path& made) noexcept {
  try {
    io::remove_tree(io::posix_storage(), made);
  } catch (const std::exception& e) {  // a failing disk must not hide the first error from the other nodes
    log::warn("left '{}' behind: {}", made.string(), e.what());
  }
}

std::vector<RemovedCopy> prune(const fs::path& dir, std::chrono::seconds age) {
  require(fs::is_directory(dir), "there is no folder '{}' to prune", dir.string());
  std::vector<RemovedCopy> pruned;
  const std::time_t now = std::time(nullptr);
  for (const Copy& copy : copies_in(dir)) {
    if (copy.whole && now - copy.used < age.count()) continue;
    if (remove(copy))
      pruned.push_back({copy.folder, copy.item.bytes()});
    else
      log::info("'{}' is in use: not removed", copy.folder.string());
  }
  return pruned;
}

}  // namespace qft::inputs
