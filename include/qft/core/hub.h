// Model and dataset names on a hub.
#pragma once

#include <string>
#include <string_view>

namespace qft {

/// True if `name` has the form owner/name and does not look like a path that was meant to be in this folder.
bool is_hub_name(const std::string& name);

/// Returns "If it is on a hub, fetch it ...: 'qft fetch NAME' ..."; `what` is "model" or "dataset".
std::string fetch_hint(std::string_view what, std::string_view name);

}  // namespace qft
