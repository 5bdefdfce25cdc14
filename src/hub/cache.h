// What a hub's cache has of a repository.
#pragma once

#include "qft/hub/fetch.h"

namespace qft::hub {

struct Cached {
  std::filesystem::path folder;  ///< empty: nothing
  std::string missing;           ///< of what is wanted; empty: nothing
};
Cached look_in_cache(const Source& source, const Wanted& wanted);

}  // namespace qft::hub
