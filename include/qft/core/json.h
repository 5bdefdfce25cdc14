// JSON from files and other programs, which nobody has checked.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qft {

/// Deeper nesting is refused: walking and printing a document takes stack for every level.
inline constexpr int kMaxJsonDepth = 64;

/// The document; throws Error starting with `where` for text that is not JSON or nested too deeply. `Json` is
/// nlohmann::json or nlohmann::ordered_json.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& where);

}  // namespace qft
