#include "copies.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/random_id.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace qft::inputs {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kManifest = ".qft-staged.json";
constexpr std::time_t kUnlockedAge = 86'400;  // without locks, a copy used within a day may still be in use

/// True if a link on the path to the file leads out of the copy.
bool leads_out(const Copy& copy, const std::string& file) {
  std::error_code code;
  fs::path at = copy.folder;
  for (const fs::path& part : fs::path(file).parent_path())
    if (fs::is_symlink(at /= part, code)) return true;
  return false;
}

}  // namespace

std::int64_t changed_at(const struct stat& status) {
  return status.st_mtim.tv_sec * INT64_C(1'000'000'000) + status.st_mtim.tv_nsec;
}

std::optional<Copy> copy_at(const fs::path& folder) {
  const fs::path manifest = folder / kManifest;
  struct stat status{};
  if (lstat(manifest.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  try {
    const json j = io::read_json(manifest);
    return Copy{folder, staged_item_of(j.at("item")), j.at("whole").get<bool>(), status.st_mtime,
                geteuid() == 0 || status.st_uid == geteuid()};
  } catch (const std::exception&) {  // not a manifest of qft
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

bool is_unchanged(const Copy& copy) {
  return std::ranges::all_of(copy.item.files, [&](const StagedFile& file) {
    struct stat status{};
    return stat((copy.folder / file.path).c_str(), &status) == 0 && static_cast<std::uint64_t>(status.st_size) == file.bytes &&
           changed_at(status) == file.copied;
  });
}

Lock lock_of(const fs::path& folder, int kind) {
  const fs::path manifest = folder / kManifest;
  int fd = open(manifest.c_str(), O_RDWR | O_CLOEXEC);  // NFS needs write access for exclusive locks
  if (fd < 0) fd = open(manifest.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const bool locked = flock(fd, kind | LOCK_NB) == 0;
  const bool busy = locked ? !io::is_same_file(fd, manifest) : errno == EWOULDBLOCK || errno == EINTR;
  if (locked && !busy) return {fd, false};
  close(fd);
  return {-1, busy};
}

bool is_free(const Copy& copy) {
  if (!copy.removable) return false;
  const Lock lock = lock_of(copy.folder, LOCK_EX);
  if (lock.fd < 0) return !lock.busy && std::time(nullptr) - copy.used > kUnlockedAge;
  close(lock.fd);
  return true;
}

bool remove(const Copy& copy) {
  if (!copy.removable) return false;
  const Lock lock = lock_of(copy.folder, LOCK_EX);
  if (lock.fd < 0 && (lock.busy || std::time(nullptr) - copy.used <= kUnlockedAge)) return false;
  std::error_code code;
  const auto inside = [&](const StagedFile& file) { return !leads_out(copy, file.path); };
  for (const StagedFile& file : copy.item.files)
    if (inside(file)) fs::remove(copy.folder / file.path, code);
  fs::remove(copy.folder / kManifest, code);
  for (const StagedFile& file : copy.item.files)
    if (inside(file))
      for (fs::path at = (copy.folder / file.path).parent_path(); at != copy.folder && fs::remove(at, code);)
        at = at.parent_path();
  if (!fs::remove(copy.folder, code))
    log::warn("'{}' has files that do not belong to qft: they were not removed", copy.folder.string());
  if (lock.fd >= 0) close(lock.fd);
  return true;
}

int write_manifest(const fs::path& folder, const StagedItem& item, bool whole) {
  io::Storage& storage = io::posix_storage();
  const fs::path temporary = folder / fmt::format("{}-{}", kOwnFiles, random_hex(12));
  io::write_file(storage, temporary, json{{"whole", whole}, {"item", to_json(item)}}.dump(1) + "\n");
  int fd = open(temporary.c_str(), O_RDWR | O_CLOEXEC);
  if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0) close(fd), fd = -1;
  storage.rename(temporary, folder / kManifest);
  storage.sync_directory(folder);
  return fd;
}

}  // namespace qft::inputs
