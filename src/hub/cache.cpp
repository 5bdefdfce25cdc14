// What the hubs' caches have, whoever put it there.
#include "cache.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/io/file.h"

#include <algorithm>
#include <cctype>

#include "selection.h"
#include "store.h"

namespace qft::hub {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The listing that huggingface_hub keeps of a commit; nothing where it has none.
std::optional<Listing> listing_of(const fs::path& home, const std::string& commit) {
  const fs::path file = home / "trees" / (commit + ".json");
  std::error_code code;
  if (!fs::is_regular_file(file, code)) return std::nullopt;
  try {
    const json tree = io::read_json(file);
    if (tree.value("format_version", 0) != 1) return std::nullopt;
    Listing listing;
    listing.commit = commit;
    for (const auto& [path, entry] : tree.at("files").items())
      listing.files.push_back({path, entry.at("size").get<std::uint64_t>(), {}, {}});
    return listing;
  } catch (const std::exception&) {  // another version's, or damaged: it is only a help
    return std::nullopt;
  }
}

std::string missing_of(const Listing& listing, const fs::path& snapshot, const Wanted& wanted) {
  std::vector<RemoteFile> files = select_first(listing, wanted);
  std::error_code code;
  for (const RemoteFile& file : files)
    if (!fs::exists(snapshot / file.path, code)) return file.path;
  for (const RemoteFile& file : select_weights(listing, wanted, snapshot.string(),
                                               [&](const RemoteFile& f) { return io::read_text_file(snapshot / f.path); }))
    if (!fs::exists(snapshot / file.path, code)) return file.path;
  return {};
}

Cached look_at(const fs::path& folder, const Wanted& wanted, const std::optional<Listing>& listing = {}) {
  try {
    return {folder, listing ? missing_of(*listing, folder, wanted) : missing_in(folder, wanted)};
  } catch (const Error& e) {  // an index that is none
    return {folder, e.what()};
  }
}

Cached in_huggingface(const Source& source, const fs::path& cache, const Wanted& wanted) {
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
  return fs::is_directory(snapshot, code) ? look_at(snapshot, wanted, listing_of(home, commit)) : Cached();
}

Cached in_modelscope(const Source& source, const fs::path& cache, const Wanted& wanted) {
  const fs::path snapshots = cache / modelscope_folder(source) / "snapshots";
  std::vector<fs::path> folders{snapshots / revision_of(source)};
  if (source.revision.empty() || source.revision == "main") {  // older clients keep one revision, and dots as ___
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
    Cached found = look_at(folder, wanted);
    if (found.missing.empty()) return found;
    if (best.folder.empty() || found.missing == "tokenizer.json") best = std::move(found);
  }
  return best;
}

}  // namespace

Cached look_in_cache(const Source& source, const Wanted& wanted) {
  check(source);
  const fs::path cache = settings_of(source.hub).cache;
  return source.hub == Hub::huggingface ? in_huggingface(source, cache, wanted) : in_modelscope(source, cache, wanted);
}

std::vector<std::string> files_of(const fs::path& folder, const Wanted& wanted) {
  Listing listing;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry)
    if (entry->is_regular_file()) listing.files.push_back({entry->path().lexically_relative(folder).generic_string(), 0, {}, {}});
  std::ranges::sort(listing.files, {}, &RemoteFile::path);
  std::vector<std::string> paths;
  for (const RemoteFile& file : select_first(listing, wanted)) paths.push_back(file.path);
  for (const RemoteFile& file :
       select_weights(listing, wanted, folder.string(), [&](const RemoteFile& f) { return io::read_text_file(folder / f.path); }))
    paths.push_back(file.path);
  return paths;
}

std::optional<fs::path> find_cached(const Source& source, const Wanted& wanted) {
  const Cached found = look_in_cache(source, wanted);
  return !found.folder.empty() && found.missing.empty() ? std::optional(found.folder) : std::nullopt;
}

}  // namespace qft::hub
