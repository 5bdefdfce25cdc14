#include "dataset_form.h"

#include "qft/core/error.h"
#include "qft/encode/record_converter.h"

#include <algorithm>

#include "csv.h"
#include "dataset_words.h"
#include "record_value.h"
#include <fmt/ranges.h>

namespace qft::encode {
namespace {

// Returns the first of a role's words that occurs; the first word of the table row if none does.
std::string word_of_role(const FirstMessages& seen, const RoleWords& role) {
  const auto found = std::find_if(role.words.begin(), role.words.end(), [&](auto word) { return seen.roles.contains(word); });
  return std::string(found == role.words.end() ? *role.words.begin() : *found);
}

// Rejects roles that are not known words.
void check_roles(const FirstMessages& seen) {
  for (const auto& [role, where] : seen.roles) {
    std::string roles;
    bool is_known = false;
    for (const RoleWords& known : kRoleWords) {
      is_known |= is_one_of(role, known.words);
      roles += fmt::format("{}{} ({})", roles.empty() ? "" : ", ", fmt::join(known.words, " or "), known.meaning);
    }
    if (!is_known)
      fail_config(
          "{}: a message has the role '{}'. Without dataset_info.json the roles are {}: write one of these, or describe the file "
          "in dataset_info.json and name '{}' there under tags",
          where, role, roles, role);
  }
}

// Merges the evidence from the columns of `spec` that hold messages.
FirstMessages messages_of(const FirstRecords& seen, const DatasetSpec& spec) {
  FirstMessages all;
  for (const std::string& column : {spec.columns.messages, spec.columns.chosen, spec.columns.rejected}) {
    const auto found = seen.messages.find(column);
    if (found == seen.messages.end()) continue;
    all.keys.insert(found->second.keys.begin(), found->second.keys.end());
    all.roles.insert(found->second.roles.begin(), found->second.roles.end());
  }
  return all;
}

void decide_messages(const FirstRecords& all, const std::string& where, DatasetSpec& spec) {
  const FirstMessages seen = messages_of(all, spec);
  const auto found = all.texts.find(spec.columns.messages);
  if (seen.keys.empty() && found != all.texts.end())
    fail_config("{}: {}: expected a list of messages, got {}: write a list of objects, or its JSON", where, spec.columns.messages,
                found->second);
  MessageTags& tags = spec.tags;
  const auto form = std::ranges::find_if(
      kMessageForms, [&](const auto& keys) { return seen.keys.contains(keys.first) && seen.keys.contains(keys.second); });
  if (form != std::end(kMessageForms)) {
    spec.formatting = Formatting::sharegpt;
    tags.role = form->first;
    tags.content = form->second;
    for (const RoleWords& role : kRoleWords) tags.*role.tag = word_of_role(seen, role);
    check_roles(seen);
    return;
  }
  if (!seen.keys.contains(kTurnForm.first) || !seen.keys.contains(kTurnForm.second))
    fail_config(
        "{}: messages have {}; expected role and content, from and value, or human and assistant. Name other keys in "
        "dataset_info.json, as role_tag and content_tag under tags",
        where, seen.keys.empty() ? "no keys" : listed(seen.keys));
  spec.formatting = Formatting::turns;
  tags.user = kTurnForm.first;
  tags.assistant = kTurnForm.second;
}

// Finds preference pairs: the columns of the two answers, and of the conversation before them. False if there are none.
bool decide_pairs(const FirstRecords& seen, DatasetSpec& spec) {
  ColumnNames& c = spec.columns;
  c.rejected = seen.first(kRejectedWords);
  c.chosen = seen.first({"chosen"});
  if (c.chosen.empty() && c.rejected != "rejected" && seen.first(kMessagesWords).empty())
    c.chosen = seen.has("output") ? "output" : seen.first(kAnswerWords);
  const bool at_end = c.rejected != "rejected" && !seen.first(kMessagesWords).empty();  // the messages end with the chosen answer
  spec.ranking = !c.rejected.empty() && (!c.chosen.empty() || at_end);
  if (!spec.ranking) c.chosen = c.rejected = "";
  return spec.ranking;
}

// The column of the conversation. For pairs without a separate column: the chosen answer's column, which ends with the answer.
std::string column_of_messages(const FirstRecords& seen, const DatasetSpec& spec) {
  const auto is_dialogue = [&](const std::string& column) {
    const auto found = seen.messages.find(column);
    return found != seen.messages.end() && found->second.is_dialogue;
  };
  if (spec.ranking && seen.messages.contains(spec.columns.rejected)) {
    if (seen.messages.contains("prompt")) return "prompt";
    if (is_dialogue(spec.columns.chosen) && is_dialogue(spec.columns.rejected)) return spec.columns.chosen;
  }
  return seen.first(kMessagesWords);
}

// For a column that may be missing: a name that has values, else a name that exists without values, else the first name.
std::string column_or_unseen(const FirstRecords& seen, Words names, DatasetSpec& spec) {
  if (std::string name = seen.first(names); !name.empty()) return name;
  const auto empty = std::find_if(names.begin(), names.end(), [&](auto name) { return seen.keys.contains(name); });
  return spec.optional_columns.emplace_back(empty == names.end() ? *names.begin() : *empty);
}

// The column with the weights of a record's labels; it may have the same names as the weights of messages.
std::string column_of_weights(const FirstRecords& seen, DatasetSpec& spec) {
  std::string column;
  bool is_other = false;  // the name exists, but not as a weight
  for (const std::string_view name : kWeightKeys) {
    const auto found = seen.numbers.find(name);
    is_other |= found == seen.numbers.end() && seen.has(name);
    if (found == seen.numbers.end()) continue;
    if (!column.empty())
      fail_config("{}: records have '{}' and '{}', and both are label weights; remove one", found->second, column, name);
    column = name;
  }
  return column.empty() && !is_other ? spec.optional_columns.emplace_back("weight") : column;
}

void decide_texts(const FirstRecords& seen, const std::string& where, bool pairs, DatasetSpec& spec) {
  ColumnNames& c = spec.columns;
  spec.formatting = Formatting::alpaca;
  if (seen.has("instruction") && (seen.has("input") || seen.has("context") || seen.has("output"))) {
    c.prompt = "instruction";
    c.response = seen.has("output") ? "output" : seen.first(kAnswerWords);
  } else {
    c.prompt = seen.first(kQuestionWords);
    c.response = seen.first(kAnswerWords);
    if (c.prompt.empty() && c.response.empty()) c.prompt = seen.first(kTextWords);
    if (c.response.empty() && !seen.first(kQuestionWords).empty()) c.response = seen.first(kTextWords);
  }
  if (c.prompt == "instruction") c.query = column_or_unseen(seen, kInputWords, spec);
  if (pairs) c.response = "";
  c.history = column_or_unseen(seen, {"history"}, spec);
  if (c.prompt.empty())
    fail_config(
        "{}: no known format has the columns {}: rename them to messages; instruction, input and output; query and response; or "
        "text, or name them in dataset_info.json{}",
        where, seen.columns.empty() ? "(none that has a value)" : listed(seen.columns),
        spec.files.empty() ? "" : separator_advice(spec.files.front()));
}

}  // namespace

void decide_form(const FirstRecords& seen, const std::string& where, const config::Stage* stage, DatasetSpec& spec) {
  if (const std::string media = seen.first(kMediaWords); !media.empty())
    fail_config("{}: has the column '{}', but qft trains on text only; remove the column to train on the texts",
                seen.columns.at(media), media);
  ColumnNames& c = spec.columns;
  c = {};
  c.prompt = c.query = c.response = c.messages = "";
  spec.optional_columns.clear();
  c.system = column_or_unseen(seen, kSystemWords, spec);
  c.tools = column_or_unseen(seen, {"tools"}, spec);
  const auto learns = [&](config::SampleKind kind) { return stage != nullptr && stage->sample == kind; };
  if (learns(config::SampleKind::texts) || learns(config::SampleKind::ranking)) {
    if (const std::string messages = decide_passages(seen, where, spec); !messages.empty())
      decide_messages(seen, seen.columns.at(messages), spec);
    return;
  }
  const bool pairs = (stage == nullptr || stage->has_pairs()) && decide_pairs(seen, spec);
  if (learns(config::SampleKind::sequence_label)) c.label = seen.first(kLabelWords);
  if (const std::string mark = seen.first(kMarkWords); learns(config::SampleKind::feedback) && seen.flags.contains(mark))
    c.kto_tag = mark;
  if (stage != nullptr && stage->weighs_labels) c.weight = column_of_weights(seen, spec);
  if (c.messages = column_of_messages(seen, spec); !c.messages.empty())
    decide_messages(seen, seen.columns.at(c.messages), spec);
  else
    decide_texts(seen, where, pairs, spec);
}

std::string columns_read(const DatasetSpec& spec, const FirstRecords& seen) {
  const ColumnNames& c = spec.columns;
  std::vector<std::string> read;
  auto rest = seen.columns;
  std::vector<std::string> columns = {c.messages, c.prompt,   c.query,    c.response, c.history, c.system, c.tools,
                                      c.chosen,   c.rejected, c.positive, c.kto_tag,  c.label,   c.weight};
  columns.insert(columns.end(), c.negatives.begin(), c.negatives.end());
  for (const std::string& column : columns) {
    const auto is_column = [&](const std::vector<std::string>& list) { return std::ranges::find(list, column) != list.end(); };
    if (!column.empty() && !is_column(read) && !is_column(spec.optional_columns)) read.push_back(column);
    rest.erase(column);
  }
  rest.erase(std::string(kDifficulty));
  return fmt::format("{}{}{}", fmt::join(read, ", "), rest.empty() ? "" : "; not read: ", listed(rest));
}

}  // namespace qft::encode
