// Reads the hubs' caches, whichever program filled them.
#include "cache.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/json.h"
#include "qft/core/log.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <cctype>

#include "selection.h"
#include "store.h"

namespace qft::hub {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path listing_file(const fs::path& home, const std::string& revision) {
  return home / ".qft-listings" / (hash_hex(revision) + ".json");
}

std::optional<Listing> read_listing(const fs::path& file) {
  std::error_code code;
  if (!fs::is_regular_file(file, code)) return std::nullopt;
  try {
    const json tree = io::read_json(file);
    if (tree.value("format_version", 0) != 1) return std::nullopt;
    Listing listing;
    for (const auto& [path, entry] : tree.at("files").items())
      listing.files.push_back({path, entry.at("size").get<std::uint64_t>(), {}, {}});
    return listing;
  } catch (const std::exception&) {  // another version's or damaged: the listing is optional
    return std::nullopt;
  }
}

/// Returns huggingface_hub's listing of a commit, or qft's listing of a revision, if one is stored.
std::optional<Listing> listing_of(const fs::path& home, const std::string& revision) {
  auto listing = read_listing(home / "trees" / (revision + ".json"));
  return listing ? listing : read_listing(listing_file(home, revision));
}

Cached inspect_folder(const fs::path& folder, const FileSelection& wanted, const std::optional<Listing>& listing = {}) {
  Cached cached{folder, {}, listing.has_value(), false};
  try {
    const std::string needed = missing_in(folder, wanted);
    cached.missing = listing ? missing_of(*listing, folder, wanted) : needed;
    // A tokenizer may be brought along; a dataset with records known to be missing is not usable.
    cached.usable_offline = needed.empty() || needed == "tokenizer.json";
    if (wanted.content == Content::dataset && !cached.missing.empty()) cached.usable_offline = false;
  } catch (const Error& e) {  // an invalid index of weights
    cached.missing = e.what();
  }
  return cached;
}

Cached in_huggingface(const Source& source, const fs::path& cache, const FileSelection& wanted) {
  const fs::path home = cache / huggingface_folder(source);
  std::string commit = revision_of(source);
  std::error_code code;
  if (!is_commit(commit)) {
    const fs::path ref = home / "refs" / commit;
    if (!fs::is_regular_file(ref, code)) return {};
    commit = io::read_text_file(ref, 4096);
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0) commit.pop_back();
    if (!is_commit(commit)) return {};
  }
  const fs::path snapshot = home / "snapshots" / commit;
  return fs::is_directory(snapshot, code) ? inspect_folder(snapshot, wanted, listing_of(home, commit)) : Cached();
}

Cached in_modelscope(const Source& source, const fs::path& cache, const FileSelection& wanted) {
  const fs::path snapshots = cache / modelscope_folder(source) / "snapshots";
  std::vector<fs::path> folders{snapshots / revision_of(source)};
  if (source.revision.empty() || source.revision == "main") {  // older clients store one revision, and dots as ___
    folders.push_back(snapshots / "main");
    const std::size_t slash = source.id.find('/');
    std::string name;
    for (const char c : source.id.substr(slash + 1)) name += c == '.' ? std::string("___") : std::string(1, c);
    const fs::path kind = fmt::format("{}s", name_of(source.kind)), id = fs::path(source.id.substr(0, slash)) / name;
    for (const fs::path& base : {cache / kind, cache / "hub" / kind, cache / "hub", cache}) folders.push_back(base / id);
  }
  Cached best;
  std::error_code code;
  for (const fs::path& folder : folders) {
    if (!fs::is_directory(folder, code) || fs::is_empty(folder, code)) continue;
    const bool ours = folder == folders.front();
    Cached found = inspect_folder(folder, wanted, ours ? listing_of(snapshots.parent_path(), revision_of(source)) : std::nullopt);
    if (found.missing.empty()) return found;
    if (best.folder.empty() || (found.usable_offline && !best.usable_offline)) best = std::move(found);
  }
  return best;
}

}  // namespace

std::string missing_of(const Listing& listing, const fs::path& folder, const FileSelection& wanted) {
  std::error_code code;
  const auto lacks = [&](const RemoteFile& file) { return fs::file_size(folder / file.path, code) != file.bytes || code; };
  const auto read = [&](const RemoteFile& file) { return io::read_text_file(folder / file.path); };
  for (const RemoteFile& file : select_first(listing, wanted))
    if (lacks(file)) return file.path;
  for (const RemoteFile& file : select_weights(listing, wanted, folder.string(), read))
    if (lacks(file)) return file.path;
  return {};
}

void keep_listing(const fs::path& home, const std::string& revision, const Listing& listing) {
  json files = json::object();
  for (const RemoteFile& file : listing.files) files[replace_invalid_utf8(file.path)] = {{"size", file.bytes}};
  const fs::path file = listing_file(home, revision);
  const std::string text = json{{"format_version", 1}, {"files", std::move(files)}}.dump(1) + "\n";
  std::error_code code;
  if (fs::is_regular_file(file, code) && io::read_text_file(file) == text) return;  // the cache may belong to another user
  io::posix_storage().create_directory(file.parent_path());
  io::atomic_write_file(io::posix_storage(), file, text);
}

Cached look_in_cache(const Source& source, const FileSelection& wanted) {
  check(source);
  const fs::path cache = settings_of(source.hub).cache;
  return source.hub == Hub::huggingface ? in_huggingface(source, cache, wanted) : in_modelscope(source, cache, wanted);
}

std::vector<std::string> files_of(const fs::path& folder, const FileSelection& wanted) {
  Listing listing;
  const auto options = fs::directory_options::skip_permission_denied;  // lost+found
  for (auto entry = fs::recursive_directory_iterator(folder, options); entry != fs::recursive_directory_iterator(); ++entry)
    if (entry->is_regular_file()) listing.files.push_back({entry->path().lexically_relative(folder).generic_string(), 0, {}, {}});
  std::ranges::sort(listing.files, {}, &RemoteFile::path);
  std::vector<std::string> paths;
  for (const RemoteFile& file : select_first(listing, wanted)) paths.push_back(file.path);
  for (const RemoteFile& file :
       select_weights(listing, wanted, folder.string(), [&](const RemoteFile& f) { return io::read_text_file(folder / f.path); }))
    paths.push_back(file.path);
  return paths;
}

std::optional<fs::path> without_hub(const Cached& cached, const std::string& why) {
  if (cached.folder.empty() || !cached.usable_offline) return std::nullopt;
  if (!cached.missing.empty())
    log::warn("{}: using '{}', which lacks {}", why, cached.folder.string(), cached.missing);
  else if (!cached.listed)
    log::warn("{}: using '{}', which may lack files", why, cached.folder.string());
  return cached.folder;
}

std::optional<fs::path> find_cached(const Source& source, const FileSelection& wanted) {
  const Cached found = look_in_cache(source, wanted);
  if (const std::string offline = offline_by(); !offline.empty()) return without_hub(found, offline);
  if (found.folder.empty() || !found.missing.empty()) return std::nullopt;
  if (!found.listed && wanted.content == Content::dataset)
    log::warn("there is no stored file list of {}: '{}' may lack files", source.id, found.folder.string());
  return found.folder;
}

}  // namespace qft::hub
