// Guesses the columns of an anchor (or query) and its documents, for stages embedding and reranker.
#include "qft/core/error.h"

#include <algorithm>
#include <iterator>

#include "dataset_form.h"
#include "dataset_words.h"
#include <fmt/ranges.h>

namespace qft::encode {
namespace {

bool is_number_of_record(std::string_view column) {
  return column == "id" || column.ends_with("_id") || column.ends_with("_ids") || column.ends_with("_idx");
}

constexpr std::string_view kNegative = "negative";

/// True for columns of negatives: negative, negative_1, negatives, rejected_response, ...
bool is_negative(std::string_view column) {
  if (is_one_of(column, kNegativeWords)) return true;
  const std::string_view number = column.starts_with("negative_") ? column.substr(kNegative.size() + 1) : "";
  return !number.empty() && number.find_first_not_of("0123456789") == number.npos;
}

/// Returns all columns with negatives, in the records' order. A column may be empty in the first records.
std::vector<std::string> negative_columns(const FirstRecords& seen) {
  std::vector<std::string> names;
  std::ranges::copy_if(seen.order, std::back_inserter(names), is_negative);
  return names;
}

std::string describe_other_negative(std::string_view column) {
  return fmt::format(
      "the column '{}' begins with {}, but is not a known column of documents: the names are {} and negative_1, negative_2, ...: "
      "rename or remove it, or name the columns in dataset_info.json as prompt, positive and negative",
      column, kNegative, fmt::join(kNegativeWords, ", "));
}

/// Scores and numbers of negatives are not documents, and other words are not known.
void refuse_other_negatives(const FirstRecords& seen) {
  for (const std::string& column : seen.order)
    if (seen.has(column) && column.starts_with(kNegative) && !is_negative(column))
      fail_config("{}: {}", seen.columns.at(column), describe_other_negative(column));
}

/// A known name says that a column holds an anchor, a positive or negatives; `other`: it belongs to a conversation. `text` says
/// nothing: it may be any of them.
enum class PassageRole { unknown, anchor, positive, negative, other };

PassageRole passage_role(std::string_view column) {
  if (column == "text") return PassageRole::unknown;
  if (is_one_of(column, kAnchorWords) || is_one_of(column, kQuestionWords)) return PassageRole::anchor;
  if (is_one_of(column, kPositiveWords) || is_one_of(column, kAnswerWords) || column == "chosen") return PassageRole::positive;
  if (is_negative(column)) return PassageRole::negative;
  return is_one_of(column, kOtherWords) || is_one_of(column, kRejectedWords) ? PassageRole::other : PassageRole::unknown;
}

bool is_text_beside(const FirstRecords& seen, const ColumnNames& c, std::string_view column) {
  return seen.has(column) && column != c.label && column != c.system;
}

/// Columns with texts that say nothing about a document: FlagEmbedding's prompt and type, ids, labels and scores.
bool is_side_column(std::string_view column) {
  return is_number_of_record(column) || is_one_of(column, {"prompt", "type"}) || is_one_of(column, kPassageLabels) ||
         column.ends_with("_score") || column.ends_with("_scores");
}

constexpr std::string_view kNameColumns =
    "name the columns in dataset_info.json, for instance \"columns\": {\"prompt\": \"question\", \"positive\": \"answer\", "
    "\"negative\": [\"wrong\"]}";

std::string describe_further_text(std::string_view column, const ColumnNames& c) {
  return fmt::format(
      "the column '{}' holds texts, but '{}' and '{}' are read by their names as anchor and positive, and '{}' is not a known "
      "name of negatives: rename it to negative if it holds negatives, remove it if it does not, or {}",
      column, c.prompt, c.positive, column, kNameColumns);
}

[[noreturn]] void refuse_order(const std::vector<std::string>& texts, std::size_t place, const FirstRecords& seen) {
  constexpr std::string_view kMeanings[] = {"", "an anchor", "a positive", "negatives", "a part of a conversation"};
  constexpr std::string_view kPlaces[] = {"the anchor", "the positive", "negatives"};
  const std::string& column = texts[place];
  fail_config(
      "{}: the columns {} cannot be read in order as anchor, positive and negatives: '{}' would be {}, but its name says {}: "
      "rename the columns to anchor, positive and negative, or {}",
      seen.columns.at(column), fmt::join(texts, ", "), column, kPlaces[std::min<std::size_t>(place, 2)],
      kMeanings[static_cast<std::size_t>(passage_role(column))], kNameColumns);
}

/// Takes the columns in the records' order, as sentence-transformers does: anchor, positive, negatives.
void take_in_order(const FirstRecords& seen, const std::string& where, ColumnNames& c) {
  std::vector<std::string> texts;
  for (const std::string& column : seen.order) {
    if (!is_text_beside(seen, c, column)) continue;
    if (is_number_of_record(column) || seen.numbers.contains(column))
      fail_config(
          "{}: the column '{}' holds numbers, but columns without known names are read in order as anchor, positive, negatives: "
          "remove it, or name the columns in dataset_info.json as prompt, positive and negative",
          seen.columns.at(column), column);
    texts.push_back(column);
  }
  if (texts.empty()) fail_config("{}: no record has a text: expected columns such as anchor, positive and negative", where);
  const PassageRole roles[] = {PassageRole::anchor, PassageRole::positive, PassageRole::negative};
  for (std::size_t i = 0; texts.size() > 1 && i < texts.size(); ++i)
    if (const PassageRole role = passage_role(texts[i]);
        role != PassageRole::unknown && role != roles[std::min<std::size_t>(i, 2)])
      refuse_order(texts, i, seen);
  c.prompt = texts[0];
  if (texts.size() > 1) c.positive = texts[1];
  for (std::size_t i = 2; i < texts.size(); ++i) c.negatives.push_back(texts[i]);
}

/// Takes the columns with known names, also those of instructions and of pairs of answers.
void take_by_name(const FirstRecords& seen, ColumnNames& c) {
  c.prompt = seen.first(kAnchorWords);
  const bool is_anchor = !c.prompt.empty();
  if (!is_anchor && seen.has("instruction")) {
    c.prompt = "instruction";
    c.query = seen.first(kInputWords);
  } else if (!is_anchor) {
    c.prompt = seen.first(kQuestionWords);
  }
  // An instruction's `text` is the whole sample, so it is the last choice there.
  const auto take = [&](Words words) {
    if (c.positive.empty()) c.positive = seen.first(words);
  };
  take(is_anchor ? kPositiveWords : kPositiveMessagesWords);
  take({"chosen"});
  take(kAnswerWords);
  take(kPositiveWords);
  c.negatives = negative_columns(seen);
}

/// Negatives without a positive would be taken for the positive.
void require_positive(const FirstRecords& seen, const ColumnNames& c, std::string_view expected) {
  if (!c.positive.empty()) return;
  for (const std::string& column : c.negatives)
    if (seen.has(column))
      fail_config("{}: the column '{}' holds negatives, but there is no column {}: add it, or {}", seen.columns.at(column),
                  column, expected, kNameColumns);
}

}  // namespace

std::vector<std::string> unread_texts(const FirstRecords& seen, const DatasetSpec& spec) {
  const ColumnNames& c = spec.columns;
  std::vector<std::string> names;
  for (const std::string& column : seen.order)
    if (is_text_beside(seen, c, column) && !seen.numbers.contains(column) && !is_side_column(column) && column != c.prompt &&
        column != c.query && column != c.messages && column != c.positive &&
        std::ranges::find(c.negatives, column) == c.negatives.end())
      names.push_back(column);
  return names;
}

std::string decide_passages(const FirstRecords& seen, const std::string& where, DatasetSpec& spec) {
  ColumnNames& c = spec.columns;
  spec.passages = true;
  spec.passages_in_order = false;
  c.label = seen.first(kPassageLabels);
  c.messages = seen.first(kMessagesWords);
  if (!c.messages.empty()) {
    refuse_other_negatives(seen);
    c.positive = seen.first(kPositiveMessagesWords);
    c.negatives = negative_columns(seen);
    require_positive(seen, c, "positive_messages");
    return c.messages;
  }
  spec.formatting = Formatting::alpaca;
  take_by_name(seen, c);
  if (!c.prompt.empty() && !c.positive.empty()) {
    refuse_other_negatives(seen);
    const std::vector<std::string> further = unread_texts(seen, spec);
    if (c.negatives.empty() && !further.empty())
      fail_config("{}: {}", seen.columns.at(further.front()), describe_further_text(further.front(), c));
    return {};
  }
  require_positive(seen, c, "positive");
  c.prompt.clear(), c.query.clear(), c.positive.clear(), c.negatives.clear();
  spec.passages_in_order = true;
  take_in_order(seen, where, c);
  return {};
}

std::string describe_later_passage(std::string_view column, ValueKind kind, const DatasetSpec& spec) {
  const ColumnNames& c = spec.columns;
  const std::string* const read[] = {&c.prompt, &c.query, &c.messages, &c.positive, &c.label, &c.system};
  if (std::ranges::any_of(read, [&](const std::string* name) { return *name == column; }) ||
      std::ranges::find(c.negatives, column) != c.negatives.end())
    return {};
  if (spec.passages_in_order)
    return "columns without known names are read in the order of the first records as anchor, positive, negatives";
  if (is_negative(column)) return "it would be read as negatives";
  if (column.starts_with(kNegative)) return describe_other_negative(column);
  const bool is_text = kind == text_value || kind == list_value;
  return is_text && c.messages.empty() && c.negatives.empty() && !is_side_column(column) ? describe_further_text(column, c) : "";
}

}  // namespace qft::encode
