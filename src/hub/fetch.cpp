#include "qft/hub/fetch.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/io/file.h"
#include "qft/net/url.h"

#include "cache.h"
#include "download.h"

namespace qft::hub {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds kShortPatience{10};  // if the cached files may suffice

std::unique_ptr<Store> store_for(const Source& source, const FetchOptions& options, const Settings& settings,
                                 const Listing& listing) {
  if (!options.to.empty()) return folder_store(source, fs::absolute(options.to).lexically_normal());
  return source.hub == Hub::huggingface ? huggingface_store(source, settings.cache, listing.commit)
                                        : modelscope_store(source, settings.cache);
}

std::string option_of(const Source& source) {
  return fmt::format("{}{}{}", source.kind == Kind::dataset ? " --dataset" : "",
                     source.hub == Hub::modelscope ? " --hub modelscope" : "",
                     source.revision.empty() ? "" : " --revision " + source.revision);
}

/// Returns where the search looked, and the remedies.
std::string advice(const Source& source, const Cached& cached) {
  const Settings own = settings_of(source.hub);
  const std::string there = cached.folder.empty()
                                ? fmt::format("it is not in the cache {}", own.cache.string())
                                : fmt::format("{} is incomplete: {} is missing", cached.folder.string(), cached.missing);
  return fmt::format(
      "{}. Fetch it on a machine with a network, such as a login node: 'qft fetch {}{}', into a cache that this node sees ({}), "
      "or with --to DIR, and use that folder",
      there, source.id, option_of(source), own.cache_key);
}

std::unique_ptr<Api> api_of(const Source& source, const Settings& settings, const RetryPolicy& trying) {
  return source.hub == Hub::huggingface ? huggingface_api(source, settings, trying) : modelscope_api(source, settings, trying);
}

/// Asks the hub for the file list of a cache folder that has no stored listing, and records the first missing file. If the hub
/// does not answer, the cached files have to suffice.
void ask_hub(Source source, const FileSelection& wanted, const FetchOptions& options, Cached& cached) {
  const Settings settings = settings_of(source.hub);
  if (source.hub == Hub::huggingface) source.revision = cached.folder.filename().string();  // the hub may have a newer one
  Listing listing;
  try {
    net::Client client;
    listing = api_of(source, settings, {kShortPatience, options.keep_going})->list(client);
  } catch (const Error& e) {
    log::warn("{}: using '{}', which may lack files", e.what(), cached.folder.string());
    return;
  }
  cached.listed = true;
  cached.missing = missing_of(listing, cached.folder, wanted);
  if (!cached.missing.empty()) {
    if (wanted.content == Content::dataset) cached.usable_offline = false;
    return;
  }
  try {
    store_for(source, {}, settings, listing)->keep(listing);
  } catch (const Error& e) {  // another user's cache: asks the hub again next time
    log::debug("{}", e.what());
  }
}

/// Returns the cached files if all files that a run needs are there; nothing if other files are requested.
std::optional<Fetched> in_cache(const Source& source, const FileSelection& wanted, const FetchOptions& options) {
  if (!options.to.empty() || wanted.everything || !wanted.include.empty()) return std::nullopt;
  const auto folder = find_cached(source, wanted);
  if (!folder) return std::nullopt;
  Fetched there;
  there.folder = *folder;
  if (source.hub == Hub::huggingface) there.commit = folder->filename().string();
  for (const std::string& file : files_of(*folder, wanted)) ++there.files, there.bytes += fs::file_size(*folder / file);
  return there;
}

}  // namespace

Fetched fetch(const Source& source, const FileSelection& wanted, const FetchOptions& options) {
  check(source);
  if (const std::string offline = offline_by(); !offline.empty()) {
    if (auto there = in_cache(source, wanted, options)) return *there;
    fail("{} forbids fetching {}, which is not complete in the cache: unset it to download", offline, source.id);
  }
  const Settings settings = settings_of(source.hub);
  const RetryPolicy trying{options.max_wait, options.keep_going};
  const auto api = api_of(source, settings, trying);
  net::Client client;
  const Listing listing = api->list(client);
  const auto store = store_for(source, options, settings, listing);
  const Download download{*api, listing, *store, options.threads, options.show_progress, trying};

  std::vector<RemoteFile> files = select_first(listing, wanted);
  store->admit(files);
  Fetched result;
  result.downloaded_bytes = download_files(download, files);
  const auto weights = select_weights(listing, wanted, source.id,
                                      [&](const RemoteFile& file) { return io::read_text_file(store->readable(file)); });
  store->admit(weights);
  result.downloaded_bytes += download_files(download, weights);
  files.insert(files.end(), weights.begin(), weights.end());
  require(!files.empty(), "none of the {} files in {} is needed: use qft fetch --all to fetch all", source.id,
          listing.files.size());
  store->publish(listing, files);

  result.folder = store->folder(listing);
  result.commit = listing.commit;
  result.files = files.size();
  for (const RemoteFile& file : files) result.bytes += file.bytes;
  return result;
}

fs::path locate(const Source& source, const FileSelection& wanted, const FetchOptions& options) {
  Cached own = look_in_cache(source, wanted);
  const std::string offline = offline_by();
  const bool there = !own.folder.empty() && own.missing.empty();
  if (there && !own.listed && offline.empty()) ask_hub(source, wanted, options, own);
  if (there && own.missing.empty() && (own.listed || offline.empty())) return own.folder;
  if (source.revision.empty() && !there) {
    Source other = source;
    other.hub = source.hub == Hub::huggingface ? Hub::modelscope : Hub::huggingface;
    if (const auto found = find_cached(other, wanted)) return *found;
  }
  if (!offline.empty()) {
    if (const auto found = without_hub(own, offline)) return *found;
    fail_config("there is no folder '{}', and {} forbids the download; {}", source.id, offline, advice(source, own));
  }
  log::info("{}: fetching it from {}",
            own.folder.empty()
                ? fmt::format("{} is not in a cache on this machine", source.id)
                : fmt::format("'{}' holds {} incompletely ({} is missing)", own.folder.string(), source.id, own.missing),
            net::host_of(settings_of(source.hub).endpoint));
  try {
    const Fetched fetched = fetch(source, wanted, options);
    return fetched.folder;
  } catch (const net::NetworkError& e) {
    if (const auto found = without_hub(own, e.what())) return *found;
    fail("there is no folder '{}', and it could not be fetched: {}; {}", source.id, e.what(), advice(source, own));
  } catch (const Error& e) {
    fail("there is no folder '{}', and fetching it failed: {}", source.id, e.what());
  }
}

}  // namespace qft::hub
