#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/random_id.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"
#include "qft/net/digest.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "cache.h"
#include "part_file.h"
#include "store.h"

namespace qft::hub {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
constexpr const char* kRecord = ".qft-fetch.json";

std::int64_t changed_at(const fs::path& path) {  // -1: no such file
  std::error_code code;
  const auto time = fs::last_write_time(path, code);
  return code ? -1 : std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

/// True if the file came from a hub, also if it is still the previous version because publish() was interrupted.
bool is_recorded(const fs::path& path, const json& entry) {
  std::error_code code;
  if (entry.contains("replaces") && is_recorded(path, entry["replaces"])) return true;
  if (fs::file_size(path, code) != entry.value("bytes", std::uint64_t{0}) || code) return false;
  if (entry.contains("changed")) return entry["changed"] == changed_at(path);
  const std::string digest = entry.value("digest", "");
  const auto check = digest.empty()        ? RemoteFile::Check::size
                     : digest.size() == 40 ? RemoteFile::Check::git_blob
                                           : RemoteFile::Check::sha256;
  return is_right(path, {"", entry.value("bytes", std::uint64_t{0}), check, digest});
}

/// Stores files under their own names: in ModelScope's cache, or in a user's folder with a record of the files that came from a
/// hub.
class FolderStore final : public Store {
 public:
  /// In a user's folder: a file that the record lacks, or that changed since, belongs to the user.
  FolderStore(const Source& source, const fs::path& folder)
      : source_(source), final_(folder), work_(folder / ".qft-fetch"), own_(true), record_(read_record()) {}
  /// In ModelScope's cache.
  FolderStore(const Source& source, const fs::path& cache, const std::string& revision)
      : source_(source),
        home_(cache / modelscope_folder(source)),
        locks_(cache / ".lock"),
        final_(home_ / "snapshots" / revision),
        work_(home_ / ".qft-parts" / hash_hex(revision)),
        record_(json::object()) {}

  bool has(const RemoteFile& file) const override {
    std::error_code code;
    if (fs::exists(whole(file), code)) return true;
    const fs::path path = final_ / file.path;
    const json entry = record_.value(file.path, json::object());
    const bool same = entry.contains("changed") && entry.value("digest", "") == file.digest && is_recorded(path, entry);
    return (same && fs::file_size(path, code) == file.bytes) || is_right(path, file);
  }
  fs::path whole(const RemoteFile& file) const override {
    return work_ / hash_hex(fmt::format("{}\n{}\n{}", file.path, file.bytes, file.digest));
  }
  fs::path lock(const RemoteFile& file) const override {
    if (own_) return whole(file).string() + ".lock";
    net::Digest digest(net::Digest::Kind::sha256);  // modelscope's name for the lock
    for (const std::string_view word : {std::string_view("modelscope-hub-download-lock-v2"), std::string_view("file"),
                                        name_of(source_.kind), std::string_view(source_.id)})
      digest.update(word), digest.update(std::string_view("\0", 1));
    digest.update(file.path);
    return locks_ / fmt::format("file_{}.lock", digest.hex());
  }
  fs::path readable(const RemoteFile& file) const override {
    std::error_code code;
    return fs::exists(whole(file), code) ? whole(file) : final_ / file.path;
  }
  fs::path folder(const Listing&) const override { return final_; }

  void admit(const std::vector<RemoteFile>& files) const override {
    std::error_code code;
    if (!own_) return;
    for (const RemoteFile& file : files) {
      const fs::path path = final_ / file.path;
      if (!fs::exists(fs::symlink_status(path, code)) || is_recorded(path, record_.value(file.path, json::object())) ||
          is_right(path, file))
        continue;
      fail(
          "'{}' exists and differs from the file in {} (incomplete, changed, or another file): choose an empty folder, or move "
          "it away",
          path.string(), source_.id);
    }
  }

  void keep(const Listing& listing) const override {
    if (!own_) keep_listing(home_, revision_of(source_), listing);
  }

  void publish(const Listing& listing, const std::vector<RemoteFile>& files) override {
    io::Storage& storage = io::posix_storage();
    std::error_code code;
    const FileLock lock(work_ / "publish.lock", [] {}, [] { return true; });  // others download to work_ and publish, too
    keep(listing);
    if (!fs::exists(final_, code)) {
      const fs::path made = work_ / ("tmp-" + random_hex(12));
      for (const RemoteFile& file : files) link(file, made);
      fs::create_directories(final_.parent_path());
      fs::rename(made, final_, code);
      require(!code || fs::is_directory(final_), "cannot rename '{}' to '{}': {}", made.string(), final_.string(),
              code.message());
      if (code) {  // the hub's own client was faster
        for (const RemoteFile& file : files) {
          storage.create_directory((final_ / file.path).parent_path());
          storage.rename(made / file.path, final_ / file.path);
        }
        io::remove_tree(storage, made);
      }
    }
    if (own_) write_record(listing, files, true);
    for (const bool last : {false, true})
      for (const RemoteFile& file : files)
        if ((file.path == "config.json") == last) move(file, final_);
    storage.sync_directory(final_);
    if (own_) write_record(listing, files, false);
    clear(files);
  }

 private:
  /// Links the file into a folder that is not visible yet and keeps the original: a kill loses nothing.
  void link(const RemoteFile& file, const fs::path& made) const {
    std::error_code code;
    fs::create_directories((made / file.path).parent_path());
    fs::create_hard_link(whole(file), made / file.path, code);
    if (code) move(file, made);  // the file system has no hard links
  }

  /// Moves the file; does nothing if it is already there or another process moved it.
  void move(const RemoteFile& file, const fs::path& to) const {
    std::error_code code, size_code;
    io::posix_storage().create_directory((to / file.path).parent_path());
    fs::rename(whole(file), to / file.path, code);
    if (code == std::errc::no_such_file_or_directory && fs::file_size(to / file.path, size_code) == file.bytes && !size_code)
      return;
    require(!code, "cannot rename '{}' to '{}': {}", whole(file).string(), (to / file.path).string(), code.message());
  }

  /// Removes the leftovers of these files in work_, and work_ itself if it is then empty.
  void clear(const std::vector<RemoteFile>& files) const {
    std::error_code code;
    for (const RemoteFile& file : files)
      if (own_)
        FileLock::remove_free(lock(file));
      else
        fs::remove(whole(file), code);  // it was linked
    fs::remove(work_ / "publish.lock", code);
    fs::remove(work_, code);
    if (!own_) fs::remove(work_.parent_path(), code);
  }

  json read_record() const {
    std::error_code code;
    if (!fs::exists(final_ / kRecord, code)) return json::object();
    const auto record = io::read_json(final_ / kRecord);
    return record.is_object() && record.contains("files") && record["files"].is_object() ? record["files"] : json::object();
  }

  /// `before`: called before the files get their names, so some may still be the old ones.
  void write_record(const Listing& listing, const std::vector<RemoteFile>& files, bool before) const {
    json record = {{"hub", name_of(source_.hub)},      {"kind", name_of(source_.kind)}, {"id", source_.id},
                   {"revision", revision_of(source_)}, {"commit", listing.commit},      {"files", record_}};
    for (const RemoteFile& file : files) {
      json entry = {
          {"bytes", file.bytes}, {"digest", file.digest}, {"changed", changed_at(before ? readable(file) : final_ / file.path)}};
      if (before && record_.contains(file.path)) entry["replaces"] = record_[file.path];  // nested after a kill
      record["files"][file.path] = std::move(entry);
    }
    io::atomic_write_file(io::posix_storage(), final_ / kRecord, record.dump(1) + "\n");
  }

  Source source_;
  fs::path home_, locks_;  // in ModelScope's cache
  fs::path final_, work_;
  bool own_ = false;
  json record_;
};

}  // namespace

fs::path modelscope_folder(const Source& source) {
  std::string id = source.id;
  id.replace(id.find('/'), 1, "--");
  return fs::path(fmt::format("{}s", name_of(source.kind))) / id;
}

std::unique_ptr<Store> modelscope_store(const Source& source, const fs::path& cache) {
  return std::make_unique<FolderStore>(source, cache, revision_of(source));
}

std::unique_ptr<Store> folder_store(const Source& source, const fs::path& folder) {
  return std::make_unique<FolderStore>(source, folder);
}

}  // namespace qft::hub
