// A pack as text: its summary, and its items as JSON lines.
#pragma once

#include "qft/data/pack_reader.h"

#include <cstdint>
#include <ostream>
#include <string>

#include <nlohmann/json.hpp>

namespace qft::data {

/// What the attributes and the sizes say: format, contract, counts, categories, sources.
nlohmann::ordered_json summarize(const PackReader& pack);

/// The summary for people, with lengths and padding-free row use.
std::string format_summary(const PackReader& pack);

/// Writes items [first, first + count) as lines: {"ids":[...],"label_spans":[[begin,end],...]}, pairs as
/// {"chosen":{...},"rejected":{...}}. Throws Error naming a damaged item.
void write_json_lines(const PackReader& pack, std::int64_t first, std::int64_t count, std::ostream& out);

}  // namespace qft::data
