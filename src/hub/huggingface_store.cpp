#include "qft/core/error.h"
#include "qft/core/random_id.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <chrono>

#include "cache.h"
#include "store.h"

namespace qft::hub {
namespace {

namespace fs = std::filesystem;
constexpr const char* kTemporary = "tmp-";  // prefix of incomplete names

class HuggingFaceStore final : public Store {
 public:
  HuggingFaceStore(const Source& source, const fs::path& cache, const std::string& commit)
      : home_(cache / huggingface_folder(source)),
        locks_(cache / ".locks" / huggingface_folder(source)),
        revision_(revision_of(source)),
        snapshot_(home_ / "snapshots" / commit) {}

  /// A blob is named by its hash and gets its name when it is complete; without links the snapshot has the file itself.
  bool has(const RemoteFile& file) const override {
    std::error_code code;
    if (fs::file_size(whole(file), code) == file.bytes && !code) return true;
    const fs::path name = snapshot_ / file.path;
    return fs::is_regular_file(fs::symlink_status(name, code)) && is_right(name, file);
  }
  fs::path whole(const RemoteFile& file) const override { return home_ / "blobs" / file.digest; }
  fs::path lock(const RemoteFile& file) const override { return locks_ / (file.digest + ".lock"); }
  fs::path readable(const RemoteFile& file) const override {
    std::error_code code;
    return fs::exists(whole(file), code) ? whole(file) : snapshot_ / file.path;
  }
  void admit(const std::vector<RemoteFile>&) const override {}
  fs::path folder(const Listing&) const override { return snapshot_; }

  void keep(const Listing& listing) const override { keep_listing(home_, listing.commit, listing); }

  void publish(const Listing& listing, const std::vector<RemoteFile>& files) override {
    io::Storage& storage = io::posix_storage();
    const fs::path final = folder(listing);
    remove_old();
    keep(listing);  // first, because without a listing the files could be a partial copy
    std::error_code code;
    if (fs::is_directory(final, code)) {
      for (const bool last : {false, true})
        for (const RemoteFile& file : files)
          if ((file.path == "config.json") == last) link(file, final, final);
    } else {
      const fs::path made = home_ / fmt::format("{}{}", kTemporary, random_hex(12));
      for (const RemoteFile& file : files) link(file, made, final);
      storage.create_directory(final.parent_path());
      rename_or_merge(made, final, files);
    }
    storage.sync_directory(final);
    if (copied_)
      for (const RemoteFile& file : files) fs::remove(whole(file), code);
    if (revision_ == listing.commit) return;
    const fs::path ref = home_ / "refs" / revision_;
    if (fs::is_regular_file(ref, code) && io::read_text_file(ref, 4096) == listing.commit) return;
    const fs::path temporary = home_ / fmt::format("{}{}", kTemporary, random_hex(12));  // in refs/ it would count as a revision
    storage.create_directory(ref.parent_path());
    io::write_file(storage, temporary, listing.commit);
    storage.rename(temporary, ref);
    storage.sync_directory(ref.parent_path());
  }

 private:
  /// Removes leftovers of killed processes.
  void remove_old() const {
    std::error_code code;
    const auto old = fs::file_time_type::clock::now() - std::chrono::hours(24);
    std::vector<fs::path> left;
    for (const auto& entry : fs::directory_iterator(home_, code))
      if (entry.path().filename().string().starts_with(kTemporary) && entry.last_write_time(code) < old)
        left.push_back(entry.path());
    for (const fs::path& path : left) fs::remove_all(path, code);
  }

  /// Makes a relative link to the blob in `folder`, which will be renamed to `final`; if the file system has no links, the file
  /// itself.
  void link(const RemoteFile& file, const fs::path& folder, const fs::path& final) {
    const fs::path name = folder / file.path;
    std::error_code code;
    const bool is_blob = fs::is_regular_file(fs::symlink_status(name, code)) && fs::exists(whole(file), code);
    if (fs::exists(name, code) && !is_blob) return;
    io::posix_storage().create_directory(name.parent_path());
    const fs::path target = whole(file).lexically_relative((final / file.path).parent_path());
    const fs::path temporary = name.parent_path() / (".qft-" + random_hex(12));
    fs::create_symlink(target, temporary, code);
    if (code == std::errc::operation_not_permitted || code == std::errc::function_not_supported ||
        code == std::errc::operation_not_supported) {
      copied_ = true;
      fs::create_hard_link(whole(file), temporary, code);
      if (code) io::copy_file(io::posix_storage(), whole(file), temporary), code.clear();  // two files may have the same bytes
    }
    require(!code, "cannot make the link '{}': {}", name.string(), code.message());
    io::posix_storage().rename(temporary, name);
  }

  /// Merges if another process made the snapshot meanwhile.
  void rename_or_merge(const fs::path& made, const fs::path& final, const std::vector<RemoteFile>& files) {
    std::error_code code;
    fs::rename(made, final, code);
    if (!code) return;
    require(fs::is_directory(final), "cannot rename '{}' to '{}': {}", made.string(), final.string(), code.message());
    for (const RemoteFile& file : files) link(file, final, final);
    io::remove_tree(io::posix_storage(), made);
  }

  fs::path home_, locks_;
  std::string revision_;
  fs::path snapshot_;
  bool copied_ = false;  // file system without links: blobs were copied into the snapshot
};

}  // namespace

std::string huggingface_folder(const Source& source) {
  std::string id = source.id;
  id.replace(id.find('/'), 1, "--");
  return fmt::format("{}s--{}", name_of(source.kind), id);
}

std::unique_ptr<Store> huggingface_store(const Source& source, const fs::path& cache, const std::string& commit) {
  return std::make_unique<HuggingFaceStore>(source, cache, commit);
}

}  // namespace qft::hub
