#include "qft/hub/fetch.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/io/file.h"
#include "qft/net/url.h"

#include <algorithm>

#include "cache.h"
#include "download.h"
#include "selection.h"

namespace qft::hub {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<Store> store_for(const Source& source, const FetchOptions& options, const Settings& settings) {
  if (!options.to.empty()) return folder_store(source, fs::absolute(options.to).lexically_normal());
  return source.hub == Hub::huggingface ? huggingface_store(source, settings.cache) : modelscope_store(source, settings.cache);
}

std::string option_of(const Source& source) {
  return fmt::format("{}{}{}", source.kind == Kind::dataset ? " --dataset" : "",
                     source.hub == Hub::modelscope ? " --hub modelscope" : "",
                     source.revision.empty() ? "" : " --revision " + source.revision);
}

/// Where it was looked for, and what may be done.
std::string advice(const Source& source, const Cached& cached) {
  const Settings own = settings_of(source.hub);
  const std::string there = cached.folder.empty()
                                ? fmt::format("no cache has it (looked in {})", own.cache.string())
                                : fmt::format("{} has only a part of it: {} is missing", cached.folder.string(), cached.missing);
  return fmt::format(
      "{}. Fetch it once where there is a network, as on a login node: 'qft fetch {}{}', into a cache that this node sees ({}), "
      "or "
      "with --to DIR, and name that folder",
      there, source.id, option_of(source), own.cache_key);
}

/// Enough for who brings a tokenizer along.
bool may_do(const Cached& cached) {
  return !cached.folder.empty() && cached.missing == "tokenizer.json";
}

}  // namespace

Fetched fetch(const Source& source, const Wanted& wanted, const FetchOptions& options) {
  check(source);
  if (const std::string offline = offline_by(); !offline.empty())
    fail("{} forbids to fetch {}: unset it to download", offline, source.id);
  const Settings settings = settings_of(source.hub);
  const auto api = source.hub == Hub::huggingface ? huggingface_api(source, settings) : modelscope_api(source, settings);
  net::Client client;
  const Listing listing = api->list(client);
  const auto store = store_for(source, options, settings);
  const Download download{*api, listing, *store, options.threads, options.show_progress, options.go_on};

  std::vector<RemoteFile> files = select_first(listing, wanted);
  store->admit(files);
  Fetched result;
  result.came = bring(download, files);
  const auto weights = select_weights(listing, wanted, source.id,
                                      [&](const RemoteFile& file) { return io::read_text_file(store->readable(file)); });
  store->admit(weights);
  result.came += bring(download, weights);
  files.insert(files.end(), weights.begin(), weights.end());
  require(!files.empty(), "{} has no file that is wanted, among {}: qft fetch --all fetches all", source.id,
          listing.files.size());
  store->publish(listing, files);

  result.folder = store->folder(listing);
  result.commit = listing.commit;
  result.files = files.size();
  for (const RemoteFile& file : files) result.bytes += file.bytes;
  return result;
}

fs::path locate(const Source& source, const Wanted& wanted, const FetchOptions& options) {
  const Cached own = look_in_cache(source, wanted);
  if (!own.folder.empty() && own.missing.empty()) return own.folder;
  if (source.revision.empty()) {
    Source other = source;
    other.hub = source.hub == Hub::huggingface ? Hub::modelscope : Hub::huggingface;
    if (const auto found = find_cached(other, wanted)) return *found;
  }
  const std::string offline = offline_by();
  if (!offline.empty() && may_do(own)) return own.folder;
  if (!offline.empty())
    fail_config("there is no folder '{}', and {} forbids to download it; {}", source.id, offline, advice(source, own));
  log::info("{} is in no cache of this machine: fetching it from {}", source.id, net::host_of(settings_of(source.hub).endpoint));
  try {
    const Fetched fetched = fetch(source, wanted, options);
    return fetched.folder;
  } catch (const net::NetworkError& e) {
    if (may_do(own)) {
      log::warn("{}: taking {}, which has no tokenizer.json", e.what(), own.folder.string());
      return own.folder;
    }
    fail("there is no folder '{}', and it could not be fetched: {}; {}", source.id, e.what(), advice(source, own));
  } catch (const Error& e) {
    fail("'{}' is no folder here, and fetching it failed: {}", source.id, e.what());
  }
}

}  // namespace qft::hub
