// What a hub's cache has of a repository.
#pragma once

#include "qft/hub/fetch.h"

#include "api.h"

namespace qft::hub {

struct Cached {
  std::filesystem::path folder;  ///< empty: nothing
  std::string missing;           ///< of what is wanted; empty: nothing that is known of
  bool listed = false;           ///< by the hub's listing; else what is there may be a part that nobody can tell from the whole
  bool may_do = false;           ///< for a run that cannot ask the hub
};
/// Where the hub cannot be asked, for the reason `why`: the folder, with a warning, if what it has may do.
std::optional<std::filesystem::path> without_hub(const Cached& cached, const std::string& why);
Cached look_in_cache(const Source& source, const Wanted& wanted);

/// What `folder` lacks of what is wanted of the listing; empty: nothing.
std::string missing_of(const Listing& listing, const std::filesystem::path& folder, const Wanted& wanted);

/// Keeps what the hub lists of a revision in `home`, a repository's folder of a cache. The file is qft's own: with theirs
/// (trees/) huggingface_hub would expect all files of the repository.
void keep_listing(const std::filesystem::path& home, const std::string& revision, const Listing& listing);

}  // namespace qft::hub
