// Common names of columns and roles, for files without a description. Private to encode.
#pragma once

#include "qft/encode/dataset_info.h"

#include "dataset_path.h"

namespace qft::encode {

inline const Words kMessagesWords = {"messages", "conversations", "conversation"};
inline const Words kSystemWords = {"system", "system_prompt"};
inline const Words kQuestionWords = {"query", "prompt", "input", "instruction", "question", "problem"};
inline const Words kAnswerWords = {"response",   "answer",  "output",   "targets",   "target",
                                   "answer_key", "answers", "solution", "completion"};
inline const Words kTextWords = {"text", "content", "sentence"};
inline const Words kInputWords = {"input", "context"};  // for an instruction
inline const Words kRejectedWords = {"rejected", "rejected_response", "rejected_messages"};
inline const Words kMarkWords = {"kto_tag", "label"};
inline const Words kLabelWords = {"label", "labels"};
inline const Words kMediaWords = {"images", "videos", "audios", "image", "video", "audio"};
inline const Words kOtherWords = {"tools", "history", "chosen", "loss_scale", "weight"};
inline const Words kAnchorWords = {"query", "anchor", "sentence1", "question"};
inline const Words kPositiveWords = {"positive", "response", "sentence2", "docs", "documents",
                                     "document", "passage",  "answer",    "text", "pos"};
inline const Words kPositiveMessagesWords = {"positive_messages", "positive"};
inline const Words kNegativeWords = {"negative", "negatives", "negative_messages", "rejected_response", "rejected", "neg"};
inline const Words kPassageLabels = {"label", "labels", "score", "scores"};
inline const Words kAllWords[] = {
    kMessagesWords, kSystemWords,  kQuestionWords, kAnswerWords, kTextWords,   kInputWords,    kRejectedWords,
    kMarkWords,     kLabelWords,   kMediaWords,    kOtherWords,  kAnchorWords, kPositiveWords, kPositiveMessagesWords,
    kNegativeWords, kPassageLabels};

/// Columns with one meaning: if a record lacks the column that is read, another one may hold its value.
struct SameColumns {
  std::string ColumnNames::* read;
  Words words;
};
inline const SameColumns kSameColumns[] = {
    {&ColumnNames::prompt, kQuestionWords},   {&ColumnNames::prompt, kTextWords},       {&ColumnNames::response, kAnswerWords},
    {&ColumnNames::messages, kMessagesWords}, {&ColumnNames::system, kSystemWords},     {&ColumnNames::rejected, kRejectedWords},
    {&ColumnNames::prompt, kAnchorWords},     {&ColumnNames::positive, kPositiveWords}, {&ColumnNames::positive, kAnswerWords}};

/// Words for each role, accepted in any message. `function` is OpenAI's old word for a tool's result; if a dataset uses it for
/// calls, its tags say so.
struct RoleWords {
  std::string MessageTags::* tag;
  Words words;
  std::string_view meaning;
};
inline const RoleWords kRoleWords[] = {
    {&MessageTags::system, {"system", "developer"}, "the system message"},
    {&MessageTags::user, {"user", "human"}, "questions"},
    {&MessageTags::assistant, {"assistant", "gpt", "bot"}, "answers"},
    {&MessageTags::function, {"function_call", "tool_call"}, "calls"},
    {&MessageTags::observation, {"observation", "tool_response", "tool", "function"}, "their results"}};

/// Forms of messages: the keys for role and text.
inline constexpr std::pair<std::string_view, std::string_view> kMessageForms[] = {{"role", "content"}, {"from", "value"}};
inline constexpr std::pair<std::string_view, std::string_view> kTurnForm = {"human", "assistant"};

}  // namespace qft::encode
