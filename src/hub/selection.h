// Which files of a repository are needed.
#pragma once

#include "qft/hub/fetch.h"

#include <functional>
#include <string>
#include <vector>

#include "api.h"

namespace qft::hub {

/// All but the weights of a model, or all that is wanted where no weights are.
std::vector<RemoteFile> select_first(const Listing& listing, const Wanted& wanted);

/// The weights; `read` gives the text of a file of select_first(). Throws Error naming what `id` has instead.
std::vector<RemoteFile> select_weights(const Listing& listing, const Wanted& wanted, const std::string& id,
                                       const std::function<std::string(const RemoteFile&)>& read);

/// What `folder`, of which nobody has a listing, lacks of what is wanted; empty: nothing.
std::string missing_in(const std::filesystem::path& folder, const Wanted& wanted);

}  // namespace qft::hub
