#include "passage_items.h"

#include "qft/core/error.h"

#include <algorithm>
#include <string>
#include <vector>

namespace qft::pack {
namespace {

using encode::Drop;
using encode::DropReason;
using encode::Passage;

/// An empty text says nothing: its vector and its score would be those of the template.
std::optional<Drop> leave_out_empty(encode::Conversation& conversation, const encode::DatasetSpec& spec,
                                    std::int64_t& empty_negatives) {
  const bool is_text = spec.formatting == encode::Formatting::alpaca;
  if (conversation.prompt.front().text.empty())
    return Drop{DropReason::empty_text,
                fmt::format("'{}' has an empty text", is_text ? spec.columns.prompt : spec.columns.messages)};
  auto& passages = conversation.passages;
  const auto is_empty = [](const Passage& passage) { return passage.text.empty(); };
  if (std::ranges::any_of(passages, [&](const Passage& passage) { return passage.relevant && is_empty(passage); }))
    return Drop{DropReason::empty_text, fmt::format("'{}' has an empty text", spec.columns.positive)};
  const auto left_out = std::erase_if(passages, is_empty);
  if (left_out > 0 && passages.empty())
    return Drop{DropReason::empty_text, fmt::format("'{}' has empty texts only", spec.columns.positive)};
  empty_negatives += static_cast<std::int64_t>(left_out);
  return std::nullopt;
}

}  // namespace

std::optional<Drop> prepare_passages(encode::Conversation& conversation, const encode::DatasetSpec& spec,
                                     config::SampleKind sample, std::int64_t& empty_negatives) {
  auto& passages = conversation.passages;
  const std::string& column = spec.columns.positive;
  if (conversation.prompt.size() != 1) return Drop{DropReason::turns, "expected one question without an answer"};
  if (passages.empty() && !column.empty()) return Drop{DropReason::no_answer, fmt::format("'{}' is missing or null", column)};
  const bool ranks = sample == config::SampleKind::ranking;
  if (!conversation.label.empty()) {
    const double label = encode::parse_targets(conversation.label).front();
    if (!ranks) conversation.tags.emplace_back(encode::kLabelTag, conversation.label);
    if (ranks && (passages.size() != 1 || (label != 0.0 && label != 1.0)))
      fail(
          "'{}' is {}: one label belongs to one document, and is 1 (relevant) or 0; {} documents need a list of labels, "
          "or columns positive and negative",
          spec.columns.label, conversation.label, passages.size());
    if (ranks) passages.front().relevant = label == 1.0;
  } else if (!ranks && !spec.columns.label.empty()) {
    conversation.tags.emplace_back(encode::kLabelTag, "1.0");  // as in ms-swift
  }
  if (auto why = leave_out_empty(conversation, spec, empty_negatives)) return why;
  const auto relevant = std::ranges::count_if(passages, &Passage::relevant);
  if (!ranks && !passages.empty() && relevant != 1)
    fail("'{}' holds {} positives, but an anchor of stage embedding has one: write a record for each", column, relevant);
  conversation.tags.emplace_back(encode::kPositivesTag, std::to_string(relevant));
  return std::nullopt;
}

}  // namespace qft::pack
