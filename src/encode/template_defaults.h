// Adds defaults for variables to a Jinja template.
#pragma once

#include "qft/encode/chat_template.h"

#include <string>

namespace qft::encode {

/// Puts statements before `jinja` that set the variables of `options`, and the system message of conversations without one.
/// Returns `jinja` unchanged if there is nothing to set.
std::string with_defaults(const std::string& jinja, const TemplateOptions& options);

}  // namespace qft::encode
