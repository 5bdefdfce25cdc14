// A template in Jinja with values for variables that its caller does not give.
#pragma once

#include "qft/encode/chat_template.h"

#include <string>

namespace qft::encode {

/// `jinja` behind statements that set the variables of `options`, and the system message of conversations without one. The text
/// itself where there is nothing to set.
std::string with_defaults(const std::string& jinja, const TemplateOptions& options);

}  // namespace qft::encode
