// Selects the files of a repository that are needed.
#pragma once

#include "qft/hub/fetch.h"

#include <functional>
#include <string>
#include <vector>

#include "api.h"

namespace qft::hub {

/// Returns all wanted files except a model's weights.
std::vector<RemoteFile> select_first(const Listing& listing, const FileSelection& wanted);

/// Returns the weights; `read` returns the text of a file of select_first(). Throws Error that lists the files `id` has instead.
std::vector<RemoteFile> select_weights(const Listing& listing, const FileSelection& wanted, const std::string& id,
                                       const std::function<std::string(const RemoteFile&)>& read);

/// Returns the first wanted file that `folder` lacks, without a listing; "" if none is known to be missing.
std::string missing_in(const std::filesystem::path& folder, const FileSelection& wanted);

}  // namespace qft::hub
