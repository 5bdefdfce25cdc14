#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/json.h"
#include "qft/core/random_id.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"
#include "qft/net/digest.h"

#include <algorithm>

#include "cache.h"
#include "file_lock.h"
#include "store.h"

namespace qft::hub {
namespace {

namespace fs = std::filesystem;
constexpr const char* kRecord = ".qft-fetch.json";

/// Files under their own names: in ModelScope's cache, or in a folder of the user's, which keeps a record of what came from a
/// hub.
class FolderStore final : public Store {
 public:
  /// `own`: files of that name that the record does not name are somebody else's.
  FolderStore(const Source& source, fs::path final, fs::path work, bool own)
      : source_(source), final_(std::move(final)), work_(std::move(work)), own_(own), record_(read_record()) {}

  bool has(const RemoteFile& file) const override {
    std::error_code code;
    return fs::exists(whole(file), code) || is_right(final_ / file.path, file);
  }
  fs::path whole(const RemoteFile& file) const override {
    return work_ / hash_hex(fmt::format("{}\n{}\n{}", file.path, file.bytes, file.digest));
  }
  fs::path lock(const RemoteFile& file) const override {
    if (own_) return whole(file).string() + ".lock";
    net::Digest digest(net::Digest::Kind::sha256);  // as modelscope names it
    for (const std::string_view word : {std::string_view("modelscope-hub-download-lock-v2"), std::string_view("file"),
                                        name_of(source_.kind), std::string_view(source_.id)})
      digest.update(word), digest.update(std::string_view("\0", 1));
    digest.update(file.path);
    return final_.parent_path().parent_path().parent_path().parent_path() / ".lock" / fmt::format("file_{}.lock", digest.hex());
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
      if (!fs::exists(fs::symlink_status(path, code)) || record_.contains(file.path) || is_right(path, file)) continue;
      fail("'{}' is there and is not the file that {} has (or only a part of it): name an empty folder, or move it away",
           path.string(), source_.id);
    }
  }

  void keep(const Listing& listing) const override {
    if (!own_) keep_listing(final_.parent_path().parent_path(), revision_of(source_), listing);
  }

  void publish(const Listing& listing, const std::vector<RemoteFile>& files) override {
    io::Storage& storage = io::posix_storage();
    std::error_code code;
    const FileLock lock(work_ / "publish.lock", [] {}, [] { return true; });  // others bring files to work_, and publish
    keep(listing);
    if (!fs::exists(final_, code)) {
      const fs::path made = work_ / ("tmp-" + random_hex(12));
      for (const RemoteFile& file : files) move(file, made);
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
    for (const bool last : {false, true})
      for (const RemoteFile& file : files)
        if ((file.path == "config.json") == last) move(file, final_);
    storage.sync_directory(final_);
    if (own_) write_record(listing, files);
    clear(files);
  }

 private:
  /// Where the file was there before, or another process moved it, nothing is to be done.
  void move(const RemoteFile& file, const fs::path& to) const {
    std::error_code code, size_code;
    io::posix_storage().create_directory((to / file.path).parent_path());
    fs::rename(whole(file), to / file.path, code);
    if (code == std::errc::no_such_file_or_directory && fs::file_size(to / file.path, size_code) == file.bytes && !size_code)
      return;
    require(!code, "cannot rename '{}' to '{}': {}", whole(file).string(), (to / file.path).string(), code.message());
  }

  /// Removes what is left of these files in work_, and work_ itself where nobody else has anything on its way there.
  void clear(const std::vector<RemoteFile>& files) const {
    std::error_code code;
    if (own_)
      for (const RemoteFile& file : files) FileLock::remove_free(lock(file));
    fs::remove(work_ / "publish.lock", code);
    fs::remove(work_, code);
    if (!own_) fs::remove(work_.parent_path(), code);
  }

  nlohmann::json read_record() const {
    std::error_code code;
    if (!own_ || !fs::exists(final_ / kRecord, code)) return nlohmann::json::object();
    const auto record = io::read_json(final_ / kRecord);
    return record.is_object() && record.contains("files") && record["files"].is_object() ? record["files"]
                                                                                         : nlohmann::json::object();
  }

  void write_record(const Listing& listing, const std::vector<RemoteFile>& files) const {
    nlohmann::json record = {{"hub", name_of(source_.hub)},      {"kind", name_of(source_.kind)}, {"id", source_.id},
                             {"revision", revision_of(source_)}, {"commit", listing.commit},      {"files", record_}};
    for (const RemoteFile& file : files) record["files"][file.path] = {{"bytes", file.bytes}, {"digest", file.digest}};
    io::atomic_write_file(io::posix_storage(), final_ / kRecord, record.dump(1) + "\n");
  }

  Source source_;
  fs::path final_, work_;
  bool own_;
  nlohmann::json record_;
};

}  // namespace

fs::path modelscope_folder(const Source& source) {
  std::string id = source.id;
  id.replace(id.find('/'), 1, "--");
  return fs::path(fmt::format("{}s", name_of(source.kind))) / id;
}

std::unique_ptr<Store> modelscope_store(const Source& source, const fs::path& cache) {
  const fs::path home = cache / modelscope_folder(source);
  const std::string revision = revision_of(source);
  return std::make_unique<FolderStore>(source, home / "snapshots" / revision, home / ".qft-parts" / hash_hex(revision), false);
}

std::unique_ptr<Store> folder_store(const Source& source, const fs::path& folder) {
  return std::make_unique<FolderStore>(source, folder, folder / ".qft-fetch", true);
}

}  // namespace qft::hub
