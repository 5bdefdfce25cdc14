// Explanations of other tools' keys for `qft help KEY`.
#pragma once

#include <string>

#include "foreign_keys.h"

namespace qft::dialects {

/// Returns the meaning of the key in qft, or the reason why qft refuses or ignores it, as lines.
std::string describe_foreign(const ForeignKey& key);

}  // namespace qft::dialects
