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

/// Takes the columns in the records' order, as sentence-transformers does: anchor, positive, negatives.
void take_in_order(const FirstRecords& seen, const std::string& where, ColumnNames& c) {
  std::vector<std::string> texts;
  for (const std::string& column : seen.order) {
    if (!seen.has(column) || column == c.label || column == c.system) continue;
    if (is_number_of_record(column) || seen.numbers.contains(column))
      fail_config(
          "{}: the column '{}' holds numbers, but columns without known names are read in order as anchor, positive, negatives: "
          "remove it, or name the columns in dataset_info.json as prompt, positive and negative",
          seen.columns.at(column), column);
    texts.push_back(column);
  }
  if (texts.empty()) fail_config("{}: no record has a text: expected columns such as anchor, positive and negative", where);
  c.prompt = texts[0];
  if (texts.size() > 1) c.positive = texts[1];
  for (std::size_t i = 2; i < texts.size(); ++i) c.negatives.push_back(texts[i]);
}

}  // namespace

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
    return c.messages;
  }
  spec.formatting = Formatting::alpaca;
  c.prompt = seen.first(kAnchorWords);
  c.positive = seen.first(kPositiveWords);
  c.negatives = negative_columns(seen);
  const bool by_name = !c.prompt.empty() && !c.positive.empty();
  const bool single = c.negatives.empty() && std::ranges::count_if(seen.order, [&](const std::string& column) {
                                               return seen.has(column) && column != c.label && column != c.system;
                                             }) == 1;
  if (by_name && !single) {
    refuse_other_negatives(seen);
    return {};
  }
  c.prompt.clear(), c.positive.clear(), c.negatives.clear();
  spec.passages_in_order = true;
  take_in_order(seen, where, c);
  return {};
}

std::string describe_later_passage(std::string_view column, const DatasetSpec& spec) {
  const ColumnNames& c = spec.columns;
  const std::string* const read[] = {&c.prompt, &c.messages, &c.positive, &c.label, &c.system};
  if (std::ranges::any_of(read, [&](const std::string* name) { return *name == column; }) ||
      std::ranges::find(c.negatives, column) != c.negatives.end())
    return {};
  if (spec.passages_in_order)
    return "columns without known names are read in the order of the first records as anchor, positive, negatives";
  if (is_negative(column)) return "it would be read as negatives";
  return column.starts_with(kNegative) ? describe_other_negative(column) : "";
}

}  // namespace qft::encode
