// A pack as text: its summary, and its items as JSON lines.
#pragma once

#include "qft/pack/reader.h"
#include "qft/tokenizer/tokenizer.h"

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::pack {

/// What the attributes and the sizes say: format, contract, counts, a histogram of the items' lengths (by
/// powers of two), categories with their items and tokens, sources.
nlohmann::ordered_json summarize(const PackReader& pack);

/// The summary for people, with lengths and padding-free row use.
std::string format_summary(const PackReader& pack);

/// How the learned parts of a text are set off: green on a terminal, or in [[ and ]]. Behind one that does not count 1 stands
/// its weight, *2.
enum class LearnedMarks { colour, brackets };

/// The first `count` items as text. Control characters other than line ends and tabs are shown as their
/// Unicode pictures: the text of a data set must not steer a terminal. Throws Error naming a damaged item.
std::string format_items(const PackReader& pack, const tokenizer::Tokenizer& tokenizer, std::int64_t count, LearnedMarks marks);

/// Lines for a log: where item `number` is from, then of each sequence its tokens and its text on one line, long parts cut in
/// their middle, what is learned in [[ and ]]. Throws Error where the item is damaged.
std::vector<std::string> sample_lines(const PackReader& pack, std::int64_t number, const tokenizer::Tokenizer& tokenizer);

/// The same for programs: item, dataset, record, category, and per sequence its pieces as {"text",
/// "learned"}, with "weight" where that is not 1.
nlohmann::ordered_json items_as_text(const PackReader& pack, const tokenizer::Tokenizer& tokenizer, std::int64_t count);

/// Writes items [first, first + count) as lines: {"ids":[...],"label_spans":[[begin,end],...]}, with "span_weights":[...] where
/// labels of the item do not count 1, pairs as
/// {"chosen":{...},"rejected":{...}}, those of stage kto with "kl":{...},"kto_tag":true|false behind their
/// own. Throws Error naming a damaged item.
void write_json_lines(const PackReader& pack, std::int64_t first, std::int64_t count, std::ostream& out);

}  // namespace qft::pack
