// Reads the hubs' caches, whichever program filled them.
#include "cache.h"

#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/hash.h"
#include "qft/core/json.h"
#include "qft/core/log.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fnmatch.h>
#include <optional>
#include <set>
#include <span>

#include "store.h"
#include <fmt/ranges.h>

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

constexpr std::array kSmall = {".json", ".jinja", ".txt", ".model", ".tiktoken"};  // configuration, tokenizer, templates

bool needs_weights(const FileSelection& wanted) {
  return !wanted.everything && wanted.include.empty() && (wanted.content == Content::model || wanted.content == Content::adapter);
}

std::string name_in(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).lexically_normal().generic_string();
}

std::string name_in(const FileSelection& wanted, const std::string& name) {
  return name_in(wanted.folder, name);
}

bool lies_in(const RemoteFile& file, const std::vector<std::string>& folders) {
  return folders.empty() || std::ranges::any_of(folders, [&](const auto& f) { return file.path.starts_with(name_in(f, "")); });
}

bool has_type(const std::string& path, const auto& types) {
  return std::ranges::find(types, fs::path(path).extension().string()) != types.end();
}

bool is_first(const RemoteFile& file, const FileSelection& wanted) {
  if (wanted.everything) return true;
  if (!wanted.include.empty())
    return std::ranges::any_of(wanted.include, [&](const auto& p) { return fnmatch(p.c_str(), file.path.c_str(), 0) == 0; });
  if (fs::path(file.path).filename().string().starts_with('.')) return false;
  if (wanted.content == Content::dataset)
    return (is_data_file(file.path) || file.path.ends_with(".md")) && (lies_in(file, wanted.folders) || file.path == "README.md");
  const std::string folder = name_in(wanted, "");  // "" or "sub/"
  return file.path.starts_with(folder) && file.path.find('/', folder.size()) == file.path.npos && has_type(file.path, kSmall);
}

/// Returns the shards that an index names, as paths in the repository.
std::set<std::string> shards_of(const std::string& index, const std::string& where, const FileSelection& wanted) {
  const auto json = parse_json(index, where);
  require(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(),
          "{}: not an index of weights: it has no object \"weight_map\"", where);
  std::set<std::string> shards;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    require(file.is_string() && is_plain_name(file.get<std::string>()), "{}: puts '{}' into {}: expected a plain file name",
            where, tensor, file.dump());
    shards.insert(name_in(wanted, file.get<std::string>()));
  }
  return shards;
}

std::span<const io::WeightNames> ways_of(const FileSelection& wanted, bool adapter) {
  return adapter || wanted.content == Content::adapter ? std::span<const io::WeightNames>(io::kAdapterWeights)
                                                       : std::span<const io::WeightNames>(io::kModelWeights);
}

/// Returns the names of a repository's weights according to `exists` and `read`; nothing if there are none.
template <class Exists, class Read>
std::optional<std::set<std::string>> weights_in(const FileSelection& wanted, const Exists& exists, const Read& read) {
  for (const bool adapter : {false, true})
    for (const io::WeightNames& way : ways_of(wanted, adapter)) {
      if (exists(name_in(wanted, way.file))) return std::set{name_in(wanted, way.file)};
      if (way.index != nullptr && exists(name_in(wanted, way.index)))
        return shards_of(read(name_in(wanted, way.index)), way.index, wanted);
    }
  return std::nullopt;
}

const RemoteFile* find(const Listing& listing, const std::string& path) {
  const auto found = std::ranges::find(listing.files, path, &RemoteFile::path);
  return found == listing.files.end() ? nullptr : &*found;
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

std::vector<RemoteFile> select_first(const Listing& listing, const FileSelection& wanted) {
  std::vector<RemoteFile> files;
  std::ranges::copy_if(listing.files, std::back_inserter(files), [&](const RemoteFile& f) { return is_first(f, wanted); });
  return files;
}

std::vector<RemoteFile> select_weights(const Listing& listing, const FileSelection& wanted, const std::string& id,
                                       const std::function<std::string(const RemoteFile&)>& read) {
  if (!needs_weights(wanted)) return {};
  const auto names = weights_in(
      wanted, [&](const std::string& name) { return find(listing, name) != nullptr; },
      [&](const std::string& name) { return read(*find(listing, name)); });
  if (!names) {
    std::vector<std::string> there;
    for (const RemoteFile& file : listing.files)
      if (there.size() < 12) there.push_back(file.path);
    fail("{} has no weights that qft reads ({}{}, or .bin); it has {}{}. Use qft fetch --all to fetch all files", id,
         name_in(wanted, ""), wanted.content == Content::adapter ? io::kAdapterWeights[0].file : io::kModelWeights[0].file,
         fmt::join(there, ", "), listing.files.size() > there.size() ? " ..." : "");
  }
  std::vector<RemoteFile> files;
  for (const std::string& name : *names) {
    const RemoteFile* file = find(listing, name);
    require(file != nullptr, "{}: its index of weights names '{}', which the repository does not have", id, name);
    files.push_back(*file);
  }
  for (const char* name : io::kValueHeadFiles)
    if (const RemoteFile* file = find(listing, name_in(wanted, name))) files.push_back(*file);
  return files;
}

std::string missing_in(const fs::path& folder, const FileSelection& wanted) {
  std::error_code code;
  const auto exists = [&](const std::string& name) { return fs::is_regular_file(folder / name, code); };
  if (!fs::is_directory(folder, code)) return "the folder";
  if (wanted.content == Content::dataset) {
    if (fs::is_empty(folder, code)) return "all files";
    const auto lacks = [&](const std::string& name) { return !fs::is_directory(folder / name, code); };
    const auto missing = std::ranges::find_if(wanted.folders, lacks);
    return missing == wanted.folders.end() ? "" : *missing;
  }
  const char* config = wanted.content == Content::adapter ? "adapter_config.json" : "config.json";
  if (!exists(name_in(wanted, config))) return name_in(wanted, config);
  if (needs_weights(wanted)) {
    const auto names = weights_in(wanted, exists, [&](const std::string& name) { return io::read_text_file(folder / name); });
    if (!names) return "the weights";
    for (const std::string& name : *names)
      if (!exists(name)) return name;
  }
  // Checked last: if only the tokenizer is missing, the cached files may suffice.
  if (wanted.content != Content::adapter && !exists(name_in(wanted, "tokenizer.json"))) return "tokenizer.json";
  return {};
}

}  // namespace qft::hub
