// Describes items for people.
#pragma once

#include "qft/config/stages.h"
#include "qft/pack/reader.h"

#include <optional>
#include <string>
#include <string_view>

namespace qft::pack {

/// Returns `text` (UTF-8) with control characters, except line ends and tabs, as Unicode pictures (U+2400 ..).
std::string printable(std::string_view text);

/// Returns the kind of the pack's samples; nullopt if this version of qft does not know its stage.
std::optional<config::SampleKind> sample_kind(const PackReader& pack);

}  // namespace qft::pack
