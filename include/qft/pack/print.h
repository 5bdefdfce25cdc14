// Prints a pack as text: its summary, and its items as JSON lines.
#pragma once

#include "qft/pack/reader.h"
#include "qft/tokenizer/tokenizer.h"

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::pack {

/// Returns a summary from the attributes and sizes: format, contract, counts, a histogram of item lengths (by powers of two),
/// categories with their items and tokens, sources.
nlohmann::ordered_json summarize(const PackReader& pack);

/// Returns the summary for people, with lengths and the row use of padding-free batches.
std::string format_summary(const PackReader& pack);

/// Marks the learned parts of a text: green on a terminal, or in [[ and ]]. A weight other than 1 follows the part: *2.
enum class LearnedMarks { colour, brackets };

/// Returns the first `count` items as text. Control characters other than line ends and tabs become their Unicode pictures,
/// because a dataset's text must not control a terminal. Throws Error with a damaged item.
std::string format_items(const PackReader& pack, const tokenizer::Tokenizer& tokenizer, std::int64_t count, LearnedMarks marks);

/// Returns lines for a log: the origin of item `number`, then for each sequence its tokens and its text on one line. Long parts
/// are cut in the middle; learned parts are in [[ and ]]. Throws Error if the item is damaged.
std::vector<std::string> sample_lines(const PackReader& pack, std::int64_t number, const tokenizer::Tokenizer& tokenizer);

/// Returns the same for programs: item, dataset, record, category, and per sequence its pieces as {"text", "learned"}, with
/// "weight" if that is not 1.
nlohmann::ordered_json items_to_json(const PackReader& pack, const tokenizer::Tokenizer& tokenizer, std::int64_t count);

/// Writes items [first, first + count) as lines {"ids":[...],"label_spans":[[begin,end],...]}, with "span_weights":[...] if the
/// item has weights other than 1. Pairs are {"chosen":{...},"rejected":{...}}; items of stage kto have
/// "kl":{...},"kto_tag":true|false after their own keys. Throws Error with a damaged item.
void write_json_lines(const PackReader& pack, std::int64_t first, std::int64_t count, std::ostream& out);

}  // namespace qft::pack
