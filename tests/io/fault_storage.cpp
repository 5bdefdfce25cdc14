#include "io/fault_storage.h"

#include <algorithm>

namespace qft::test {

namespace fs = std::filesystem;

class FaultFile : public io::WritableFile {
 public:
  FaultFile(FaultStorage& storage, std::string path, std::unique_ptr<io::WritableFile> base)
      : storage_(storage), path_(std::move(path)), base_(std::move(base)) {}

  void append(const void* data, std::uint64_t bytes) override {
    const bool half = storage_.step("append to " + path_);
    storage_.synced_bytes_.try_emplace(path_, synced_);
    base_->append(data, half ? bytes / 2 : bytes);
    bytes_ += bytes;
    if (half) fail("injected short write to '{}': {} of {} bytes", path_, bytes / 2, bytes);
  }
  void sync() override {
    storage_.step("sync of " + path_);
    synced_ = bytes_;
    storage_.synced_bytes_.erase(path_);
  }
  void close() override {
    storage_.step("close of " + path_);
    base_->close();
  }

 private:
  FaultStorage& storage_;
  std::string path_;
  std::unique_ptr<io::WritableFile> base_;
  std::uint64_t bytes_ = 0, synced_ = 0;
};

bool FaultStorage::step(const std::string& what) {
  if (crashed_) fail("the process is gone: {}", what);
  if (fault_ == Fault::none || operations_++ != at_) return false;
  if (fault_ == Fault::crash) crashed_ = true;
  const bool is_append = what.rfind("append", 0) == 0;
  if (fault_ != Fault::error && is_append) return true;
  fail("injected fault: {}", what);
}

namespace {

void rename_in(std::string& path, const std::string& from, const std::string& to) {
  if (path == from || path.rfind(from + "/", 0) == 0) path = to + path.substr(from.size());
}

}  // namespace

// The journal holds names as they were at the time of each entry and is undone backwards. Only a durable rename, which will not
// be undone, changes the entries before it.
void FaultStorage::moved(const std::string& from, const std::string& to) {
  std::map<std::string, std::uint64_t> files;
  for (const auto& [path, bytes] : synced_bytes_) {
    std::string now = path;
    rename_in(now, from, to);
    files.emplace(now, bytes);
  }
  synced_bytes_ = std::move(files);
}

void FaultStorage::rename_earlier_entries(std::size_t count, const std::string& from, const std::string& to) {
  for (std::size_t i = 0; i < count; ++i) {
    rename_in(unsynced_names_[i].a, from, to);
    rename_in(unsynced_names_[i].b, from, to);
  }
}

void FaultStorage::lose_unsynced() {
  for (const auto& [path, bytes] : synced_bytes_)
    if (fs::exists(path)) fs::resize_file(path, bytes);
  synced_bytes_.clear();
  for (auto e = unsynced_names_.rbegin(); e != unsynced_names_.rend(); ++e) {
    switch (e->change) {
      case Change::created:
        fs::remove_all(e->a);
        break;
      case Change::renamed:
        fs::rename(e->b, e->a);
        break;
      case Change::removed:
        if (fs::exists(fs::path(e->a).parent_path())) fs::rename(e->b, e->a);
        break;
    }
  }
  unsynced_names_.clear();
}

std::unique_ptr<io::WritableFile> FaultStorage::create(const fs::path& path) {
  step("create " + path.string());
  if (!fs::exists(path)) unsynced_names_.push_back({Change::created, path.string(), {}});
  return std::make_unique<FaultFile>(*this, path.string(), base_.create(path));
}

void FaultStorage::create_directory(const fs::path& dir) {
  step("create directory " + dir.string());
  if (!fs::exists(dir)) unsynced_names_.push_back({Change::created, dir.string(), {}});
  base_.create_directory(dir);
}

void FaultStorage::rename(const fs::path& from, const fs::path& to) {
  step("rename " + from.string());
  if (fs::exists(to) && !fs::is_directory(to)) {
    // Undone together with the rename below: the old file comes back.
    const fs::path kept = scratch_ / std::to_string(kept_++);
    fs::rename(to, kept);
    unsynced_names_.push_back({Change::removed, to.string(), kept.string()});
  }
  base_.rename(from, to);
  moved(from.string(), to.string());
  unsynced_names_.push_back({Change::renamed, from.string(), to.string()});
}

void FaultStorage::remove(const fs::path& path) {
  step("remove " + path.string());
  if (fs::is_directory(path) && !fs::is_empty(path)) fail("cannot remove '{}': it is not empty", path.string());
  const fs::path kept = scratch_ / std::to_string(kept_++);
  fs::rename(path, kept);
  synced_bytes_.erase(path.string());
  unsynced_names_.push_back({Change::removed, path.string(), kept.string()});
}

std::vector<std::string> FaultStorage::list(const fs::path& dir) {
  step("list " + dir.string());
  return base_.list(dir);
}

bool FaultStorage::exists(const fs::path& path) {
  step("look at " + path.string());
  return base_.exists(path);
}

bool FaultStorage::is_directory(const fs::path& path) {
  step("look at " + path.string());
  return base_.is_directory(path);
}

void FaultStorage::sync_directory(const fs::path& dir) {
  step("sync directory " + dir.string());
  for (std::size_t i = 0; i < unsynced_names_.size(); ++i) {
    const Entry e = unsynced_names_[i];
    const bool durable = fs::path(e.change == Change::renamed ? e.b : e.a).parent_path() == dir;
    if (!durable) continue;
    if (e.change == Change::renamed) rename_earlier_entries(i, e.a, e.b);
    unsynced_names_.erase(unsynced_names_.begin() + static_cast<std::ptrdiff_t>(i--));
  }
}

}  // namespace qft::test
