// State of a repository in a hub's cache, and the files of it that are needed.
#pragma once

#include "qft/hub/fetch.h"

#include <functional>
#include <string>
#include <vector>

#include "api.h"

namespace qft::hub {

struct Cached {
  std::filesystem::path folder;  ///< empty: not in the cache
  std::string missing;           ///< first wanted file that is missing; empty: none known
  bool listed = false;           ///< checked against the hub's listing; without one a partial copy looks complete
  bool usable_offline = false;   ///< good enough for a run that cannot ask the hub
};
/// Returns the folder, with a warning, if the hub cannot be asked (for the reason `why`) and the cached files suffice.
std::optional<std::filesystem::path> without_hub(const Cached& cached, const std::string& why);
Cached look_in_cache(const Source& source, const FileSelection& wanted);

/// Returns the first file wanted from the listing that `folder` lacks; "" if none.
std::string missing_of(const Listing& listing, const std::filesystem::path& folder, const FileSelection& wanted);

/// Stores a revision's listing in `home`, the repository's folder in a cache. The file is private to qft: given a listing in its
/// own place (trees/), huggingface_hub would expect all files of the repository.
void keep_listing(const std::filesystem::path& home, const std::string& revision, const Listing& listing);

/// Returns all wanted files except a model's weights.
std::vector<RemoteFile> select_first(const Listing& listing, const FileSelection& wanted);

/// Returns the weights; `read` returns the text of a file of select_first(). Throws Error that lists the files `id` has instead.
std::vector<RemoteFile> select_weights(const Listing& listing, const FileSelection& wanted, const std::string& id,
                                       const std::function<std::string(const RemoteFile&)>& read);

/// Returns the first wanted file that `folder` lacks, without a listing; "" if none is known to be missing.
std::string missing_in(const std::filesystem::path& folder, const FileSelection& wanted);

}  // namespace qft::hub
