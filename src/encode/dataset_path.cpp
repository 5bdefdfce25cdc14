#include "dataset_path.h"

#include "qft/core/data_types.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/units.h"
#include "qft/encode/record_converter.h"
#include "qft/encode/record_source.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "record_weights.h"
#include <fmt/ranges.h>
#include <simdjson.h>

namespace qft::encode {
namespace {

namespace fs = std::filesystem;
namespace dom = simdjson::dom;

constexpr int kRecords = 64;  // of each file that are looked at
constexpr std::size_t kFiles = 64;

/// Names, and the record where each stands first ("data/a.jsonl:3").
using Names = std::map<std::string, std::string, std::less<>>;

/// What the messages of a column show.
struct Messages {
  Names keys, roles;
  bool is_dialogue = false;  // in some record there are two or more of them
};

/// What the first records show.
struct Seen {
  Names columns;                                          // that have a value in some record
  Names flags;                                            // that are true or false
  Names numbers;                                          // that are numbers
  std::map<std::string, Messages, std::less<>> messages;  // by their columns
  Names placeholders;                                     // {{NAME}}, {{AUTHOR}}: texts that wait for a value
  int records = 0;                                        // that could be parsed
  std::string fault;                                      // of the first record that could not

  bool has(std::string_view column) const { return columns.find(column) != columns.end(); }
  /// The first of `names` that is a column; "" for none.
  std::string first(Words names) const {
    const auto found = std::find_if(names.begin(), names.end(), [&](auto name) { return has(name); });
    return found == names.end() ? std::string() : std::string(*found);
  }
};

const Words kMessages = {"messages", "conversations", "conversation"};
const Words kSystem = {"system", "system_prompt"};
const Words kQuestion = {"query", "prompt", "input", "instruction", "question", "problem"};
const Words kAnswer = {"response", "answer", "output", "targets", "target", "answer_key", "answers", "solution", "completion"};
const Words kText = {"text", "content", "sentence"};
const Words kRejected = {"rejected", "rejected_response", "rejected_messages"};
const Words kMarks = {"kto_tag", "label"};
const Words kLabels = {"label", "labels"};
const Words kMedia = {"images", "videos", "audios", "image", "video", "audio"};

bool is_empty(const dom::element& value) {
  dom::array list;
  return value.is_null() || (value.get(list) == simdjson::SUCCESS && list.size() == 0);
}

// A list of messages, or a single one.
void look_at_messages(const std::string& column, const dom::element& value, const std::string& where, Seen& seen) {
  std::vector<dom::object> messages;
  dom::array list;
  dom::object object;
  if (value.get(object) == simdjson::SUCCESS) messages.push_back(object);
  if (value.get(list) == simdjson::SUCCESS)
    for (const dom::element message : list)
      if (message.get(object) == simdjson::SUCCESS) messages.push_back(object);
  if (messages.empty()) return;
  Messages& found = seen.messages[column];
  found.is_dialogue |= messages.size() > 1;
  for (const dom::object& message : messages)
    for (const auto& field : message) {
      if (is_empty(field.value)) continue;
      found.keys.emplace(field.key, where);
      std::string_view role;
      if (is_one_of(field.key, {"role", "from"}) && field.value.get(role) == simdjson::SUCCESS) found.roles.emplace(role, where);
    }
}

void look_at(const fs::path& path, Seen& seen) {
  const DatasetSpec unknown;
  RecordConverter converter(unknown, false);
  for_first_records(path, kRecords, [&](const RecordText& record) {
    for (const std::string_view word : {"{{NAME}}", "{{AUTHOR}}"})
      if (record.text.find(word) != record.text.npos) seen.placeholders.emplace(word, record.where());
    try {
      for (const auto& field : converter.parse(record.text)) {
        if (is_empty(field.value)) continue;
        seen.columns.emplace(field.key, record.where());
        if (field.value.is_bool()) seen.flags.emplace(field.key, record.where());
        if (field.value.is_number()) seen.numbers.emplace(field.key, record.where());
        look_at_messages(std::string(field.key), field.value, record.where(), seen);
      }
      ++seen.records;
    } catch (const Error& e) {  // where others can be read, it is reported when it is
      if (seen.fault.empty()) seen.fault = fmt::format("{}: {}", record.where(), e.what());
    }
  });
}

std::string list(const Names& names) {
  std::string text;
  for (const auto& [name, where] : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The words that stand for each role without dataset_info.json; the first of a row where none is seen.
const Words kUser = {"user", "human"};
const Words kAssistant = {"assistant", "gpt", "bot"};
const Words kObservation = {"observation", "tool_response", "tool"};
const Words kFunction = {"function_call", "tool_call"};

std::string role_word(const Messages& seen, Words words) {
  const auto found = std::find_if(words.begin(), words.end(), [&](auto word) { return seen.roles.contains(word); });
  return std::string(found == words.end() ? *words.begin() : *found);
}

// A role that is none of the tags', or a second word for one of them.
void check_roles(const Messages& seen, const MessageTags& tags) {
  for (const auto& [role, where] : seen.roles) {
    if (is_one_of(role, {tags.user, tags.assistant, tags.observation, tags.function, tags.system})) continue;
    for (const Words& words : {kUser, kAssistant, kObservation, kFunction})
      if (is_one_of(role, words)) {
        const std::string other = role_word(seen, words);
        fail_config(
            "{}: a message has the role '{}', and one in {} the role '{}' for the same: write one of them "
            "everywhere",
            where, role, seen.roles.at(other), other);
      }
    fail_config(
        "{}: a message has the role '{}'. Without dataset_info.json the roles are {} (questions), {} "
        "(answers), {} (calls), {} "
        "(their results) and {}: write one of these, or describe the file in dataset_info.json and name '{}' "
        "there under tags",
        where, role, fmt::join(kUser, " or "), fmt::join(kAssistant, " or "), fmt::join(kFunction, " or "),
        fmt::join(kObservation, " or "), tags.system, role);
  }
}

// What the columns of `spec` show that hold messages.
Messages messages_of(const Seen& seen, const DatasetSpec& spec) {
  Messages all;
  for (const std::string& column : {spec.columns.messages, spec.columns.chosen, spec.columns.rejected}) {
    const auto found = seen.messages.find(column);
    if (found == seen.messages.end()) continue;
    all.keys.insert(found->second.keys.begin(), found->second.keys.end());
    all.roles.insert(found->second.roles.begin(), found->second.roles.end());
  }
  return all;
}

void describe_messages(const Messages& seen, const std::string& where, DatasetSpec& spec) {
  if (seen.keys.contains("tool_calls"))
    fail_config("{}: a message has 'tool_calls': describe the file in dataset_info.json with formatting: openai",
                seen.keys.at("tool_calls"));
  MessageTags& tags = spec.tags;
  tags.role = seen.keys.contains("role") ? "role" : "from";
  tags.content = seen.keys.contains("content") ? "content" : "value";
  if (!seen.keys.contains(tags.role) || !seen.keys.contains(tags.content)) {
    const bool turns = seen.keys.contains("human") && seen.keys.contains("assistant");
    if (!turns)
      fail_config(
          "{}: messages have {}, where role and content, from and value, or human and assistant are "
          "expected: name others in "
          "dataset_info.json, as role_tag and content_tag under tags",
          where, seen.keys.empty() ? "no keys" : list(seen.keys));
    spec.formatting = Formatting::turns;
    tags.user = "human";
    tags.assistant = "assistant";
    return;
  }
  spec.formatting = Formatting::sharegpt;
  tags.user = role_word(seen, kUser);
  tags.assistant = role_word(seen, kAssistant);
  tags.observation = role_word(seen, kObservation);
  tags.function = role_word(seen, kFunction);
  check_roles(seen, tags);
}

// Preference pairs: the columns of the two answers, and of the conversation before them. False where there are none.
bool describe_pairs(const Seen& seen, DatasetSpec& spec) {
  ColumnNames& c = spec.columns;
  c.rejected = seen.first(kRejected);
  c.chosen = seen.first({"chosen"});
  if (c.chosen.empty() && c.rejected != "rejected" && seen.first(kMessages).empty())
    c.chosen = seen.has("output") ? "output" : seen.first(kAnswer);
  const bool at_end = c.rejected != "rejected" && !seen.first(kMessages).empty();  // the messages end with the chosen answer
  spec.ranking = !c.rejected.empty() && (!c.chosen.empty() || at_end);
  if (!spec.ranking) c.chosen = c.rejected = "";
  return spec.ranking;
}

// The column of the conversation; of pairs in which no column holds it alone that of the chosen one, which ends with the answer.
std::string column_of_messages(const Seen& seen, const DatasetSpec& spec) {
  const auto is_dialogue = [&](const std::string& column) {
    const auto found = seen.messages.find(column);
    return found != seen.messages.end() && found->second.is_dialogue;
  };
  if (spec.ranking && seen.messages.contains(spec.columns.rejected)) {
    if (seen.messages.contains("prompt")) return "prompt";
    if (is_dialogue(spec.columns.chosen) && is_dialogue(spec.columns.rejected)) return spec.columns.chosen;
  }
  return seen.first(kMessages);
}

// The column of what a record's labels count, by the names that messages have for it.
std::string column_of_weights(const Seen& seen) {
  std::string column;
  for (const std::string_view name : kWeightKeys) {
    const auto found = seen.numbers.find(name);
    if (found == seen.numbers.end()) continue;
    if (!column.empty())
      fail_config("{}: records have '{}' and '{}', and either says what labels count: take one out", found->second, column, name);
    column = name;
  }
  return column;
}

void describe(const Seen& seen, const std::string& where, std::string_view stage, DatasetSpec& spec) {
  if (const std::string media = seen.first(kMedia); !media.empty())
    fail_config("{}: has the column '{}': qft trains on text alone; take the column out to train on the texts",
                seen.columns.at(media), media);
  ColumnNames& c = spec.columns;
  c = {};
  c.prompt = c.query = c.response = c.messages = "";
  c.system = seen.first(kSystem);
  c.tools = seen.first({"tools"});
  const bool pairs = stage != "sft" && stage != "pt" && stage != "kto" && stage != "seq_cls" && describe_pairs(seen, spec);
  if (stage == "seq_cls") c.label = seen.first(kLabels);
  if (const std::string mark = seen.first(kMarks); stage == "kto" && seen.flags.contains(mark)) c.kto_tag = mark;
  if (stage == "sft") c.weight = column_of_weights(seen);
  if (c.messages = column_of_messages(seen, spec); !c.messages.empty())
    return describe_messages(messages_of(seen, spec), seen.columns.at(c.messages), spec);
  spec.formatting = Formatting::alpaca;
  if (seen.has("instruction") && (seen.has("input") || seen.has("context") || seen.has("output"))) {
    c.prompt = "instruction";
    c.query = seen.first({"input", "context"});
    c.response = seen.has("output") ? "output" : seen.first(kAnswer);
  } else {
    c.prompt = seen.first(kQuestion);
    c.response = seen.first(kAnswer);
    if (c.prompt.empty() && c.response.empty()) c.prompt = seen.first(kText);
    if (c.response.empty() && !seen.first(kQuestion).empty()) c.response = seen.first(kText);
  }
  if (pairs) c.response = "";
  c.history = seen.first({"history"});
  if (c.prompt.empty())
    fail_config(
        "{}: no known format has the columns {}: rename them to messages; instruction, input and output; query and response; or "
        "text, or name them in dataset_info.json",
        where, seen.columns.empty() ? "(none that has a value)" : list(seen.columns));
}

/// "question and answer; not read: source".
std::string read_columns(const ColumnNames& c, const Seen& seen) {
  std::vector<std::string> read;
  for (const std::string& column : {c.messages, c.prompt, c.query, c.response, c.history, c.system, c.tools, c.chosen, c.rejected,
                                    c.kto_tag, c.label, c.weight})
    if (!column.empty() && std::ranges::find(read, column) == read.end()) read.push_back(column);
  auto rest = seen.columns;
  for (const std::string& column : read) rest.erase(column);
  rest.erase(std::string(kDifficulty));
  return fmt::format("{}{}{}", fmt::join(read, ", "), rest.empty() ? "" : "; not read: ", list(rest));
}

}  // namespace

std::optional<DatasetSpec> dataset_at(const std::string& name, std::string_view stage) {
  std::error_code code;
  const fs::path path = name;
  const bool folder = fs::is_directory(path, code);
  if (!folder && !fs::is_regular_file(path, code)) return std::nullopt;
  return dataset_of(folder ? data_files_in(path) : std::vector<fs::path>{path}, name, stage);
}

DatasetSpec dataset_of(std::vector<fs::path> files, const std::string& name, std::string_view stage) {
  DatasetSpec spec;
  spec.name = name;
  spec.described_in = spec.tags_from = "what the first records show";
  spec.files = std::move(files);
  const std::string type = spec.files.front().extension().string();
  if (!is_data_file(spec.files.front())) refuse_type("dataset", spec.files.front());
  if (type == ".txt") {
    spec.columns = {};
    spec.columns.prompt = "text";
    spec.columns.query = spec.columns.response = spec.columns.messages = "";
    return spec;
  }
  Seen seen;
  for (std::size_t i = 0; i < std::min(kFiles, spec.files.size()); ++i) look_at(spec.files[i], seen);
  const std::string where = fmt::format("dataset: {}", spec.files.front().string());
  if (seen.records == 0 && !seen.fault.empty()) fail("{}", seen.fault);
  if (seen.records == 0) fail_config("{} holds no record", where);
  for (const auto& [word, place] : seen.placeholders)
    fail_config("{}: a text has the placeholder {}: replace it by a name, for instance with sed -i 's/{}/Bot/g'", place, word,
                word);
  describe(seen, where, stage, spec);
  const std::string first = spec.files.front().string();
  const std::int64_t others = std::ssize(spec.files) - 1;
  const std::string from = others == 0 ? first : fmt::format("{} and {}", first, counted(others, "more file"));
  log::info("dataset {}: {}reads {}", name, from == name ? "" : from + "; ", read_columns(spec.columns, seen));
  if (const std::string& weight = spec.columns.weight; !weight.empty())
    log::warn(
        "dataset {}: the labels of a record count as many times as its column '{}' says; rename it if it means another thing",
        name, weight);
  return spec;
}

}  // namespace qft::encode
