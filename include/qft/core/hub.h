// Names as models and datasets have on a hub.
#pragma once

#include <string>
#include <string_view>

namespace qft {

/// Whether `name` is of the form owner/name, and looks like no path that was meant to be in this folder.
bool is_named_as_on_a_hub(const std::string& name);

/// "If it is on a hub, fetch it ...: 'qft fetch NAME' ..."; `what` is "model" or "dataset".
std::string how_to_fetch(std::string_view what, std::string_view name);

}  // namespace qft
