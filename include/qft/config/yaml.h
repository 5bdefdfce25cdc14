// The subset of YAML that qft accepts in run files and all other files that users write.
#pragma once

#include <string>
#include <string_view>

namespace qft::config {

/// Throws ConfigError "where:line: ..." unless `text` is one YAML document without anchors, aliases, tags, repeated keys or deep
/// nesting.
void require_plain_yaml(const std::string& text, std::string_view where);

}  // namespace qft::config
