// ~ and environment variables in paths.
#pragma once

#include <string>
#include <string_view>

namespace qft::config {

/// Expands a leading "~" or "~/" (HOME), $NAME, ${NAME} and ${oc.env:NAME} (OmegaConf's form).
/// Throws ConfigError "where: ..." for a variable that is not set.
std::string expand_path(std::string_view path, std::string_view where);

}  // namespace qft::config
