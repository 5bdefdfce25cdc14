// Checks the run's inputs (present, readable, the same on every node) and outputs (writable, shared or private).
#include "qft/comm/exchange.h"
#include "qft/core/random_id.h"
#include "qft/core/units.h"
#include "qft/io/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "outputs.h"
#include "probe.h"

namespace qft::check {
namespace {

namespace fs = std::filesystem;
using Use = NeededPath::Use;

/// Returns the size and hash of a file, or an error such as "dangling link".
Json state_of(const fs::path& path) {
  std::error_code error;
  if (fs::is_symlink(path, error) && !fs::exists(path, error))
    return {{"error", fmt::format("is a link to '{}', which does not exist", fs::read_symlink(path, error).string())}};
  if (!fs::exists(path, error)) return {{"error", "does not exist"}};
  if (access(path.c_str(), R_OK) != 0) return {{"error", fmt::format("is not readable: {}", std::strerror(errno))}};
  try {
    const io::File file = io::File::open_read(path);
    return {{"size", file.size()}, {"hash", io::sampled_hash(file)}};
  } catch (const std::exception& e) {
    return {{"error", fmt::format("cannot be read: {}", e.what())}};
  }
}

/// Inspects a file, or all files of a folder by name.
Json inspect(const fs::path& path) {
  std::error_code error;
  Json files = Json::object();
  if (!fs::is_directory(path, error)) {
    files[""] = state_of(path);
    return files;
  }
  fs::directory_iterator entries(path, error);
  if (error) files[""] = {{"error", fmt::format("cannot be listed: {}", error.message())}};
  for (; !error && entries != fs::directory_iterator(); entries.increment(error))
    if (const std::string name = entries->path().filename(); !entries->is_directory(error) && !name.starts_with(".qft-"))
      files[name] = state_of(entries->path());  // records that qft writes itself, such as a copy's, may differ
  return files;
}

/// Describes a rank's copy of a file; ranks are compared by this text.
std::string words_of(const Json& files, const std::string& name) {
  const auto found = files.find(name);
  if (found == files.end()) return "is not there";
  if (found->contains("error")) return found->at("error");
  return fmt::format("has {} bytes (hash {})", found->at("size").get<std::uint64_t>(), found->at("hash").get<std::string>());
}

struct PathReport {
  std::size_t files = 0;
  double bytes = 0;
  bool good = true;
};

PathReport judge_path(const Facts& facts, const NeededPath& path, std::size_t index, Judgement& out) {
  const auto files_of = [&](int rank) -> const Json& { return facts.of[static_cast<std::size_t>(rank)].at("paths").at(index); };
  std::vector<std::string> names;
  for (const int rank : facts.all())
    for (const auto& [name, state] : files_of(rank).items()) names.push_back(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  // If the path is a folder on one rank, but a file or nothing on another, the path itself is what differs.
  if (!names.empty() && names.front().empty()) names.resize(1);
  PathReport report;
  for (const std::string& name : names) {
    const Groups groups = group(facts.all(), [&](int rank) {
      const Json& files = files_of(rank);
      return name.empty() && !files.contains("") ? std::string("is a folder") : words_of(files, name);
    });
    std::vector<int> bad;
    for (const auto& [words, ranks] : groups)
      if (!words.starts_with("has ") && words != "is a folder") bad.insert(bad.end(), ranks.begin(), ranks.end());
    const std::string file = (name.empty() ? path.path : path.path / name).string();
    if (groups.size() == 1 && bad.empty()) {
      const Json& state = files_of(0).at(name);
      report.files += 1;
      report.bytes += state.at("size").get<double>();
      continue;
    }
    report.good = false;
    std::sort(bad.begin(), bad.end());
    if (!bad.empty()) {
      const Groups wrong = group(bad, [&](int rank) { return words_of(files_of(rank), name); });
      out.fail(fmt::format("{}: '{}' {}", path.key, file, describe(facts, wrong)), bad);
    } else {
      out.fail(fmt::format("{}: '{}' is not the same everywhere: it {}", path.key, file, describe(facts, groups)),
               minority(groups));
    }
  }
  return report;
}

/// Tries to write 64 KiB and to sync them; returns the error or "". Permission bits do not show quotas, read-only mounts and
/// squashed users.
std::string try_to_write(const fs::path& folder) {
  const fs::path file = folder / fmt::format(".qft-check-own-{}", random_hex());  // two nodes may have the same pids
  const int fd = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return fmt::format("a file could not be made in {}: {}", folder.string(), std::strerror(errno));
  const std::vector<char> text(std::size_t{64} << 10, 'q');
  errno = 0;
  const ssize_t written = write(fd, text.data(), text.size());
  const bool good = written == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  const int why = good ? 0 : errno != 0 ? errno : ENOSPC;
  close(fd);
  unlink(file.c_str());
  return good ? "" : fmt::format("64 KiB could not be written in {}: {}", folder.string(), std::strerror(why));
}

/// Returns whether this rank sees a file that rank 0 writes there. Collective.
bool sees_file_of_rank_zero(comm::Session& session, const fs::path& path) {
  const auto name = fmt::format(".qft-check-{}", comm::broadcast_string(session.world(), random_hex()));
  const fs::path file = existing_folder(path) / name;
  if (session.rank() == 0) {
    const int fd = open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
  }
  session.world().barrier();
  std::error_code error;
  const bool sees = fs::exists(file, error);
  session.world().barrier();
  if (session.rank() == 0) unlink(file.c_str());
  return sees;
}

}  // namespace

fs::path existing_folder(fs::path path) {
  std::error_code error;
  path = fs::absolute(path, error);
  while (!fs::is_directory(path, error) && path.has_relative_path()) path = path.parent_path();
  return path;
}

Room room_in(const fs::path& folder) {
  struct statvfs room{};
  if (statvfs(folder.c_str(), &room) != 0) return {-1, -1};
  return {static_cast<std::int64_t>(room.f_bavail) * static_cast<std::int64_t>(room.f_frsize),
          room.f_files == 0 ? -1 : static_cast<std::int64_t>(room.f_favail)};
}

Json gather_files(Context& context) {
  Json paths = Json::array();
  for (const NeededPath& needed : context.options.paths)
    paths.push_back(needed.use == Use::read ? inspect(needed.path) : Json::object());
  return {{"paths", paths}};
}

void judge_files(const Facts& facts, Judgement& out) {
  const auto& paths = facts.options.paths;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (paths[i].use != Use::read) continue;
    const PathReport report = judge_path(facts, paths[i], i, out);
    if (report.good)
      out.fine(fmt::format("{}: '{}': {}, {}, readable and the same on all ranks", paths[i].key, paths[i].path.string(),
                           count_noun(report.files, "file"), format_bytes(report.bytes)));
  }
}

Json gather_outputs(Context& context) {
  Json outputs = Json::array();
  for (const NeededPath& needed : context.options.paths) {
    if (needed.use != Use::write) continue;
    const fs::path folder = existing_folder(needed.path);
    outputs.push_back({{"key", needed.key},
                       {"path", needed.path.string()},
                       {"error", try_to_write(folder)},
                       {"inodes", room_in(folder).files},
                       {"sees", sees_file_of_rank_zero(context.session, needed.path)}});
  }
  return {{"outputs", outputs}};
}

void judge_writable(const Facts& facts, Judgement& out) {
  constexpr std::int64_t kFewFiles = 1000;
  for (std::size_t i = 0; i < facts.at(0, "outputs").size(); ++i) {
    const auto of = [&](int rank) -> const Json& { return facts.at(rank, "outputs").at(i); };
    const std::string what = fmt::format("{} '{}'", of(0).at("key").get<std::string>(), of(0).at("path").get<std::string>());
    std::vector<int> bad, few;
    for (const int rank : facts.all()) {
      const std::int64_t files = of(rank).at("inodes");
      if (of(rank).at("error") != "")
        bad.push_back(rank);
      else if (files >= 0 && files < kFewFiles)
        few.push_back(rank);
    }
    const Groups groups = group(bad, [&](int rank) { return of(rank).at("error").get<std::string>(); });
    if (!bad.empty()) out.fail(fmt::format("{} cannot be written: {}", what, describe(facts, groups)), bad);
    if (!few.empty()) {
      const Groups left =
          group(few, [&](int rank) { return fmt::format("{} files", of(rank).at("inodes").get<std::int64_t>()); });
      out.fail(fmt::format("{} has no inodes for more than {}", what, describe(facts, left)), few);
    }
    if (bad.empty() && few.empty()) out.fine(fmt::format("{} can be written on all ranks", what));
  }
}

void judge_shared(const Facts& facts, Judgement& out) {
  for (std::size_t i = 0; i < facts.at(0, "outputs").size(); ++i) {
    const Json& first = facts.at(0, "outputs").at(i);
    std::vector<int> blind;
    for (const int rank : facts.all())
      if (!facts.at(rank, "outputs").at(i).at("sees").get<bool>()) blind.push_back(rank);
    const std::string path = first.at("path");
    if (first.at("error") != "") continue;  // rank 0 could not write a file to look for
    if (blind.empty())
      out.fine(fmt::format("'{}' is shared by all ranks", path));
    else
      out.warn(fmt::format("'{}' is private to each node: {} of {} ranks do not see rank 0's files", path, blind.size(),
                           facts.ranks()));
  }
}

}  // namespace qft::check
