#include "qft/core/json.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cmath>

namespace qft {

std::string as_utf8(std::string_view text) {
  const auto quoted = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(quoted).get<std::string>();
}

nlohmann::ordered_json json_number(double value) {
  if (std::isfinite(value)) return value;
  return fmt::format("{}", value);
}

template <class Json>
Json parse_json(std::string_view text, const std::string& where) {
  const auto limit = [&](int depth, typename Json::parse_event_t, Json&) {
    require(depth <= kMaxJsonDepth, "{} is nested more than {} deep", where, kMaxJsonDepth);
    return true;
  };
  try {
    return Json::parse(text, limit);
  } catch (const nlohmann::json::parse_error& e) {
    const JsonFault fault = find_json_fault(text, e.byte == 0 ? 0 : e.byte - 1, e.what());
    fail("{} is not valid JSON: line {}, column {}: {}", where, fault.line, fault.column, fault.what);
  } catch (const nlohmann::json::exception& e) {  // "[json.exception...] number overflow parsing '1e999'"
    const std::string_view reason = e.what();
    fail("{} is not valid JSON: {}", where, reason.substr(std::min(reason.find("] ") + 2, reason.size())));
  }
}

template nlohmann::json parse_json(std::string_view, const std::string&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&);

}  // namespace qft
