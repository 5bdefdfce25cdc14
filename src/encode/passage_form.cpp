// Guesses the columns of an anchor (or query) and its documents, for stages embedding and reranker.
#include "qft/core/error.h"

#include <algorithm>

#include "dataset_form.h"
#include "dataset_words.h"
#include <fmt/ranges.h>

namespace qft::encode {
namespace {

const Words kAnchorWords = {"query", "anchor", "sentence1", "question"};
const Words kPositiveWords = {"positive", "response", "sentence2", "docs", "documents", "document", "passage", "answer", "text"};
const Words kPassageLabels = {"label", "labels", "score", "scores"};

bool is_number_of_record(std::string_view column) {
  return column == "id" || column.ends_with("_id") || column.ends_with("_ids") || column.ends_with("_idx");
}

/// Returns all columns with negatives, in the records' order: negative, negative_1, negatives, rejected_response, ...
std::vector<std::string> negative_columns(const FirstRecords& seen) {
  std::vector<std::string> names;
  for (const std::string& column : seen.order)
    if (seen.has(column) && (column.starts_with("negative") || column == "rejected_response")) names.push_back(column);
  return names;
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
  c.label = seen.first(kPassageLabels);
  c.messages = seen.first(kMessagesWords);
  if (!c.messages.empty()) {
    c.positive = seen.first({"positive_messages", "positive"});
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
  if (by_name && !single) return {};
  c.prompt.clear(), c.positive.clear(), c.negatives.clear();
  take_in_order(seen, where, c);
  return {};
}

}  // namespace qft::encode
