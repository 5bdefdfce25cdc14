#include "qft/core/json.h"

#include "qft/core/error.h"

namespace qft {

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  const auto limit = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    require(depth <= kMaxJsonDepth, "{} is nested more than {} deep", where, kMaxJsonDepth);
    return true;
  };
  try {
    return nlohmann::json::parse(text, limit);
  } catch (const nlohmann::json::exception& e) {
    fail("{} is not valid JSON: {}", where, e.what());
  }
}

}  // namespace qft
