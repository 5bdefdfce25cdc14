#include "download.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/core/random_id.h"
#include "qft/core/thread.h"
#include "qft/core/units.h"
#include "qft/net/url.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <utility>

#include "part_file.h"

namespace qft::hub {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kTries = 5;  // for errors of a storage server
constexpr double kMegabyte = 1e6;

/// State shared by all threads of a download.
class DownloadState {
 public:
  DownloadState(const Download& download, std::uint64_t total, std::size_t files)
      : download_(download),
        files_(files),
        progress_(fmt::format("fetching {}: MB", download.api.source().id), megabytes(total), download.show_progress) {}

  bool may_continue() const { return !failed_ && download_.trying.may_continue(); }
  void fail_all() { failed_ = true; }
  void came(std::int64_t bytes) {  // negative: bytes to download again
    const std::scoped_lock lock(mutex_);
    came_ += bytes;
    show();
  }
  void was_there(std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    resumed_ += static_cast<std::int64_t>(bytes);
    show();
  }
  void is_whole() {
    const std::scoped_lock lock(mutex_);
    ++whole_;
    show();
  }
  void say_once(const std::string& words) {  // only the first of the threads' messages
    const std::scoped_lock lock(mutex_);
    progress_.clear();
    if (!std::exchange(said_, true)) log::info("{}", words);
  }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(std::max<std::int64_t>(came_, 0)); }

 private:
  static std::int64_t megabytes(std::uint64_t bytes) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(bytes) / kMegabyte));
  }
  void show() {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const double rate = seconds > 0 ? static_cast<double>(came_) / seconds / kMegabyte : 0;
    progress_.update(static_cast<std::int64_t>(static_cast<double>(came_ + resumed_) / kMegabyte),
                     fmt::format("{:.1f} MB/s, {} of {} files", rate, whole_, files_));
  }

  const Download& download_;
  std::size_t files_, whole_ = 0;
  std::int64_t came_ = 0, resumed_ = 0;
  bool said_ = false;
  std::atomic<bool> failed_ = false;
  Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  Progress progress_;
};

/// Downloads one file in one thread.
class FileDownload {
 public:
  FileDownload(const Download& download, DownloadState& state, net::Client& client, const RemoteFile& file)
      : download_(download), state_(state), client_(client), file_(file) {}

  void run() {
    const FileLock lock(
        download_.store.lock(file_),
        [&] { state_.say_once(fmt::format("waiting for another process that fetches {}", file_.path)); },
        [&] { return state_.may_continue(); });
    if (download_.store.has(file_)) return state_.was_there(file_.bytes), state_.is_whole();
    fs::path path = download_.store.part(file_);
    if (!lock.held()) path += "." + random_hex(8);
    for (int tries = 1;; ++tries) {
      PartFile part(path, file_);
      if (tries == 1) state_.was_there(part.size());
      load(part);
      const auto found = part.finish(download_.store.whole(file_));
      if (!found) return state_.is_whole();
      state_.came(-static_cast<std::int64_t>(file_.bytes));
      if (tries == 2)
        fail(
            "{}: {} from {} has the {} {}, but the hub states {}: it was removed. Try again; if that fails, a proxy or mirror on "
            "the way to {} changes files",
            download_.api.source().id, file_.path, net::host_of(download_.api.settings().endpoint),
            file_.check == RemoteFile::Check::sha256 ? "sha256" : "git hash", *found, file_.digest,
            net::without_secrets(download_.api.settings().endpoint));
      log::warn("{}: {} has a hash that differs from the hub's: fetching it again", download_.api.source().id, file_.path);
    }
  }

 private:
  /// Reason why not all bytes arrived; empty words: request again at once.
  struct Fault {
    std::string words = {};
    std::chrono::seconds asked = {};  ///< wait requested by the server
    bool refused = false;             ///< unlikely to pass without a change
  };

  /// Downloads until all bytes are in the part.
  void load(PartFile& part) {
    RetryTimer patience({download_.trying.patience, [&] { return state_.may_continue(); }},
                        [&](const std::string& words) { state_.say_once(words); });
    std::uint64_t most = part.size();  // bytes received a second time are not progress
    for (int refused = 0; part.size() < file_.bytes;) {
      const Fault fault = request(part);
      if (fault.words.empty()) continue;
      if (part.size() > most) most = part.size(), refused = 0, patience.reset();
      if (fault.refused && ++refused == kTries) throw_stopped(part, fault.words);
      if (!patience.wait(fault.words, fault.asked)) throw_stopped(part, state_.may_continue() ? fault.words : "ended on request");
    }
  }

  /// Requests the missing bytes.
  Fault request(PartFile& part) {
    net::Request r = download_.api.file(download_.listing, file_);
    r.first_byte = static_cast<std::int64_t>(part.size());
    r.keep_going = [this] { return activity::tick(), state_.may_continue(); };
    r.sink = [&](std::string_view bytes) {
      require(bytes.size() <= file_.bytes - part.size(), "{}: {} is longer than the {} bytes that the hub states",
              download_.api.source().id, file_.path, file_.bytes);
      part.append(bytes);
      state_.came(static_cast<std::int64_t>(bytes.size()));
      return true;
    };
    try {
      const net::Response response = client_.send(r);
      if (response.ok()) return {part.size() == file_.bytes ? "" : "the answer ended early"};
      if (response.status == 416 && r.first_byte > 0) return drop(part), Fault();
      // The storage server behind a redirect has no accounts: a new redirect may bring a signature that it accepts.
      const bool by_hub = net::site_of(response.url) == net::site_of(download_.api.settings().endpoint);
      const bool busy = is_busy(response.status);
      if (by_hub && !busy) download_.api.refuse(client_, response);
      const auto asked = busy ? asked_wait(response, std::time(nullptr)) : std::chrono::seconds();
      return {fmt::format("{} answers {}{}", net::host_of(response.url), response.status,
                          asked.count() > 0 ? fmt::format(" and asks to wait {} s", asked.count()) : ""),
              asked, !busy};
    } catch (const net::NoRangeError&) {
      drop(part);
      return {};
    } catch (const net::NetworkError& e) {
      return {e.what()};
    }
  }

  void drop(PartFile& part) {
    state_.came(-static_cast<std::int64_t>(part.size()));
    part.clear();
  }

  [[noreturn]] void throw_stopped(const PartFile& part, const std::string& why) const {
    throw net::NetworkError(
        fmt::format("{}: {} stopped after {} of {}: {}. The received bytes are kept: run the same command again to resume",
                    download_.api.source().id, file_.path, format_bytes(static_cast<double>(part.size())),
                    format_bytes(static_cast<double>(file_.bytes)), why));
  }

  const Download& download_;
  DownloadState& state_;
  net::Client& client_;
  const RemoteFile& file_;
};

/// Runs `body` on each file, several in parallel; the first error ends all.
void for_each(int threads, const std::vector<RemoteFile>& files, DownloadState* state,
              const std::function<void(net::Client&, const RemoteFile&)>& body) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr first;  // later errors only say that they were stopped
  run_workers(std::max(1, std::min<int>(threads, static_cast<int>(files.size()))), [&](int) {
    try {
      net::Client client;
      for (std::size_t i = next++; i < files.size(); i = next++) body(client, files[i]);
    } catch (...) {
      next = files.size();
      const std::scoped_lock lock(mutex);
      if (!first) first = std::current_exception();
      if (state != nullptr) state->fail_all();
    }
  });
  if (first) std::rethrow_exception(first);
}

void require_space(const Download& download, const std::vector<RemoteFile>& files) {
  std::uint64_t needed = 0;
  std::error_code code;
  for (const RemoteFile& file : files) {
    const auto there = fs::file_size(download.store.part(file), code);
    needed += file.bytes - std::min(file.bytes, code ? 0 : there);
  }
  fs::path disk = download.store.folder(download.listing);
  while (!disk.empty() && disk.has_parent_path() && disk != disk.parent_path() && !fs::exists(disk, code))
    disk = disk.parent_path();
  const fs::space_info space = fs::space(disk.empty() ? "." : disk, code);
  if (code || needed == 0) return;
  require(needed + needed / 100 <= space.available,  // reserve for the file system's own data
          "{} needs {} more, but the disk of {} has {} free: free some space, or choose another place ({} or --to)",
          download.api.source().id, format_bytes(static_cast<double>(needed)), disk.string(),
          format_bytes(static_cast<double>(space.available)), download.api.settings().cache_key);
}

}  // namespace

std::uint64_t download_files(const Download& download, const std::vector<RemoteFile>& files) {
  std::vector<RemoteFile> missing;
  std::mutex mutex;
  for_each(download.threads, files, nullptr, [&](net::Client&, const RemoteFile& file) {
    if (!download.trying.may_continue()) throw net::NetworkError("ended on request while checking the existing files");
    if (download.store.has(file)) return;
    const std::scoped_lock lock(mutex);
    missing.push_back(file);
  });
  if (missing.empty()) return 0;
  std::ranges::sort(missing,
                    [](const auto& a, const auto& b) { return a.bytes != b.bytes ? a.bytes > b.bytes : a.path < b.path; });
  // A cache stores files with the same content once.
  std::set<fs::path> seen;
  std::erase_if(missing, [&](const RemoteFile& file) { return !seen.insert(download.store.whole(file)).second; });
  std::uint64_t total = 0;
  for (const RemoteFile& file : missing) total += file.bytes;
  require_space(download, missing);
  DownloadState state(download, total, missing.size());
  for_each(download.threads, missing, &state,
           [&](net::Client& client, const RemoteFile& file) { FileDownload(download, state, client, file).run(); });
  return state.bytes();
}

}  // namespace qft::hub
