#include "qft/core/member.h"

#include "qft/core/error.h"

#include <algorithm>
#include <atomic>

#include <nlohmann/json.hpp>

namespace qft {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> g_follow_links = false;

bool lies_in(const fs::path& file, const fs::path& dir) {
  const auto [at, end] = std::mismatch(dir.begin(), dir.end(), file.begin(), file.end());
  return at == dir.end();
}

// The cache stores each file once under its hash, next to the snapshots that link to it or next to all repositories.
bool lies_in_blobs_of(const fs::path& file, const fs::path& dir) {
  for (fs::path at = dir.parent_path(); at.has_relative_path(); at = at.parent_path()) {
    if (at.filename() != "snapshots") continue;
    const fs::path repository = at.parent_path();
    const std::string name = repository.filename().string();
    const bool named = name.starts_with("models--") || name.starts_with("datasets--");
    return lies_in(file, repository / "blobs") || (named && lies_in(file, repository.parent_path() / "blobs"));
  }
  return false;
}

}  // namespace

void follow_links(bool follow) {
  g_follow_links = follow;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

fs::path member_of(const fs::path& dir, std::string_view name) {
  // Printed as JSON: a raw NUL would end the message.
  if (!is_plain_name(name))
    fail("'{}' refers to a file named {}: only plain names of files in the same directory are allowed", dir.string(),
         nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  fs::path path = dir / name;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  require(!fs::exists(status) || fs::is_regular_file(status), "'{}' is {}, not a file", path.string(),
          fs::is_directory(status) ? "a directory" : "a special file");
  code.clear();
  if (g_follow_links || !fs::is_symlink(fs::symlink_status(path, code))) return path;
  const fs::path target = fs::canonical(path, code);
  if (code == std::errc::no_such_file_or_directory) return path;
  const fs::path home = code ? fs::path() : fs::canonical(dir, code);
  require(!code, "cannot follow the link '{}': {}", path.string(), code.message());
  require(
      lies_in(target, home) || lies_in_blobs_of(target, home),
      "'{}' is a link to '{}', outside its directory, and is not followed: put the file itself there "
      "(cp, or ln without -s), give the directory that holds it, or set follow_links: true if you trust whoever made the link "
      "(qft-ckpt: --follow-links)",
      path.string(), target.string());
  return path;
}

bool is_plain_path(std::string_view path) {
  const std::size_t slash = path.find('/');
  return slash == path.npos ? is_plain_name(path) : is_plain_name(path.substr(0, slash)) && is_plain_name(path.substr(slash + 1));
}

fs::path member_at(const fs::path& dir, std::string_view path) {
  const std::size_t slash = path.find('/');
  if (slash == path.npos) return member_of(dir, path);
  const std::string_view folder = path.substr(0, slash);
  std::error_code code;
  require(is_plain_name(folder) && (g_follow_links || !fs::is_symlink(fs::symlink_status(dir / folder, code))),
          "'{}' refers to a folder named '{}', which is a link or not a plain name", dir.string(), folder);
  return member_of(dir / folder, path.substr(slash + 1));
}

}  // namespace qft
