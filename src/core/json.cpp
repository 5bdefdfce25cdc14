#include "qft/core/json.h"

#include "qft/core/error.h"

namespace qft {

template <class Json>
Json parse_json(std::string_view text, const std::string& where) {
  const auto limit = [&](int depth, typename Json::parse_event_t, Json&) {
    require(depth <= kMaxJsonDepth, "{} is nested more than {} deep", where, kMaxJsonDepth);
    return true;
  };
  try {
    return Json::parse(text, limit);
  } catch (const nlohmann::json::exception& e) {
    fail("{} is not valid JSON: {}", where, e.what());
  }
}

template nlohmann::json parse_json(std::string_view, const std::string&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&);

}  // namespace qft
