// The template files of configs/templates, compiled into the binary.
#pragma once

#include <span>
#include <string_view>

namespace qft::encode {

struct EmbeddedTemplate {
  std::string_view name;  // file name without .yaml
  std::string_view yaml;
};

/// Sorted by name.
std::span<const EmbeddedTemplate> embedded_templates();

}  // namespace qft::encode
