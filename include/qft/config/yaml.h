// What qft takes as YAML, in run files and everything else that a user writes.
#pragma once

#include <string>
#include <string_view>

namespace qft::config {

/// Throws ConfigError "where:line: ..." unless `text` is one YAML document without anchors, aliases, tags, repeated keys and
/// deep nesting.
void require_plain_yaml(const std::string& text, std::string_view where);

}  // namespace qft::config
