#include "dataset_path.h"

#include "qft/core/data_types.h"
#include "qft/core/error.h"
#include "qft/core/file_kind.h"
#include "qft/core/log.h"
#include "qft/encode/record_converter.h"
#include "qft/encode/record_source.h"
#include "qft/io/file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>
#include <simdjson.h>

namespace qft::encode {
namespace {

namespace fs = std::filesystem;
namespace dom = simdjson::dom;

constexpr int kRecords = 64;  // of each file that are looked at
constexpr std::size_t kFiles = 64;

using Words = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view word, Words words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Names, and the record where each stands first ("data/a.jsonl:3").
using Names = std::map<std::string, std::string, std::less<>>;

/// What the first records show.
struct Seen {
  Names columns;  // that have a value in some record
  Names keys;     // inside messages
  Names roles;
  Names placeholders;  // {{NAME}}, {{AUTHOR}}: texts that wait for a value
  int records = 0;     // that could be parsed
  std::string fault;   // of the first record that could not

  bool has(std::string_view column) const { return columns.find(column) != columns.end(); }
  /// The first of `names` that is a column; "" for none.
  std::string first(Words names) const {
    const auto found = std::find_if(names.begin(), names.end(), [&](auto name) { return has(name); });
    return found == names.end() ? std::string() : std::string(*found);
  }
};

const Words kMessages = {"messages", "conversations", "conversation"};
const Words kPair = {"chosen", "rejected"};
const Words kSystem = {"system", "system_prompt"};
const Words kQuestion = {"query", "prompt", "input", "instruction", "question", "problem"};
const Words kAnswer = {"response", "answer", "output", "targets", "target", "answer_key", "answers", "solution", "completion"};
const Words kText = {"text", "content"};
const Words kMedia = {"images", "videos", "audios", "image", "video", "audio"};

bool is_empty(const dom::element& value) {
  dom::array list;
  return value.is_null() || (value.get(list) == simdjson::SUCCESS && list.size() == 0);
}

void look_at_message(const dom::element& value, const std::string& where, Seen& seen) {
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return;
  for (const auto& field : object) {
    if (is_empty(field.value)) continue;
    seen.keys.emplace(field.key, where);
    std::string_view role;
    if (is_one_of(field.key, {"role", "from"}) && field.value.get(role) == simdjson::SUCCESS) seen.roles.emplace(role, where);
  }
}

void look_at_messages(const dom::element& value, const std::string& where, Seen& seen) {
  dom::array messages;
  if (value.get(messages) != simdjson::SUCCESS) return;
  for (const dom::element message : messages) look_at_message(message, where, seen);
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
        if (is_one_of(field.key, kMessages)) look_at_messages(field.value, record.where(), seen);
        if (is_one_of(field.key, kPair)) look_at_message(field.value, record.where(), seen);
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

std::string role_word(const Seen& seen, Words words) {
  const auto found = std::find_if(words.begin(), words.end(), [&](auto word) { return seen.roles.contains(word); });
  return std::string(found == words.end() ? *words.begin() : *found);
}

// A role that is none of the tags', or a second word for one of them.
void check_roles(const Seen& seen, const MessageTags& tags) {
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

void describe_messages(const Seen& seen, DatasetSpec& spec) {
  for (const char* key : {"loss", "loss_scale"})
    if (seen.keys.contains(key))
      fail_config("{}: a message has '{}': answers are learned alike; take it out, or use mask_history",
                  seen.keys.find(key)->second, key);
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
          seen.columns.at(spec.columns.messages), seen.keys.empty() ? "no keys" : list(seen.keys));
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

/// Pairs: `chosen` and `rejected`, or a rejected answer beside the one that is there.
void describe_pairs(const Seen& seen, DatasetSpec& spec) {
  ColumnNames& c = spec.columns;
  c.rejected = seen.first({"rejected", "rejected_response"});
  if (c.rejected.empty()) return;
  spec.ranking = true;
  c.chosen = seen.has("chosen") ? "chosen" : c.response;  // none: the last message
}

void describe_texts(const Seen& seen, const std::string& where, DatasetSpec& spec) {
  ColumnNames& c = spec.columns;
  spec.formatting = Formatting::alpaca;
  if (seen.has("instruction") && (seen.has("input") || seen.has("context") || seen.has("output") || seen.has("chosen"))) {
    c.prompt = "instruction";
    c.query = seen.first({"input", "context"});
    c.response = seen.has("output") ? "output" : seen.first(kAnswer);
  } else {
    c.prompt = seen.first(kQuestion);
    c.response = seen.first(kAnswer);
    if (c.prompt.empty() && c.response.empty()) c.prompt = seen.first(kText);
    if (c.response.empty() && !seen.first(kQuestion).empty()) c.response = seen.first(kText);
  }
  c.history = seen.first({"history"});
  if (c.prompt.empty())
    fail_config(
        "{}: no known format has the columns {}: rename them to messages; instruction, input and output; query and response; or "
        "text, or name them in dataset_info.json",
        where, seen.columns.empty() ? "(none that has a value)" : list(seen.columns));
}

void describe(const Seen& seen, const std::string& where, DatasetSpec& spec) {
  if (const std::string media = seen.first(kMedia); !media.empty())
    fail_config("{}: has the column '{}': qft trains on text alone; take the column out to train on the texts",
                seen.columns.at(media), media);
  ColumnNames& c = spec.columns;
  c = {};
  c.prompt = c.query = c.response = c.messages = "";
  c.system = seen.first(kSystem);
  c.tools = seen.first({"tools"});
  if (c.messages = seen.first(kMessages); !c.messages.empty())
    describe_messages(seen, spec);
  else
    describe_texts(seen, where, spec);
  describe_pairs(seen, spec);
}

/// "question and answer; not read: source".
std::string read_columns(const ColumnNames& c, const Seen& seen) {
  std::vector<std::string> read;
  for (const std::string& column :
       {c.messages, c.prompt, c.query, c.response, c.history, c.system, c.tools, c.chosen, c.rejected})
    if (!column.empty()) read.push_back(column);
  auto rest = seen.columns;
  for (const std::string& column : read) rest.erase(column);
  rest.erase(std::string(kDifficulty));
  return fmt::format("{}{}{}", fmt::join(read, ", "), rest.empty() ? "" : "; not read: ", list(rest));
}

bool is_described(const fs::path& file) {  // files that stand beside the data in a hub's repository
  return is_one_of(file.filename().string(), {"dataset_info.json", "dataset_infos.json", "configuration.json"}) ||
         is_one_of(file.stem().string(), {"README", "LICENSE", "requirements"});
}

}  // namespace

std::set<std::string, std::less<>> name_words(const fs::path& file, const fs::path& folder) {
  std::set<std::string, std::less<>> words;
  std::string word;
  for (const char c : file.lexically_relative(folder).string() + ".") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else {
      words.insert(std::exchange(word, {}));
    }
  }
  return words;
}

std::vector<fs::path> data_files_in(const fs::path& folder) {
  std::array<std::vector<fs::path>, kDataTypes.size()> by_type;
  std::vector<fs::path> train, unmarked;
  std::string foreign;
  std::error_code code, unreadable;
  if (fs::directory_iterator(folder, code); code)
    fail_config("dataset: cannot read the folder {}: {}", folder.string(), code.message());
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, code);
  for (; !code && entry != fs::recursive_directory_iterator(); entry.increment(code)) {
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
      continue;
    }
    if (entry->is_directory(unreadable) && (fs::directory_iterator(entry->path(), unreadable), unreadable))
      log::warn("dataset: the folder {} is skipped: {}", entry->path().string(), unreadable.message());
    if (!entry->is_regular_file(unreadable) || is_described(entry->path())) continue;
    const std::string type = entry->path().extension().string();
    if (const auto known = std::ranges::find(kDataTypes, type); known != kDataTypes.end())
      by_type[static_cast<std::size_t>(known - kDataTypes.begin())].push_back(entry->path());
    if (is_one_of(type, {".tsv", ".gz", ".zst", ".zip"})) foreign = entry->path().string();
  }
  if (code) fail_config("dataset: cannot read all of the folder {}: {}", folder.string(), code.message());
  const auto first = std::ranges::find_if(by_type, [](const auto& files) { return !files.empty(); });
  if (first == by_type.end())
    fail_config("dataset: the folder {} has no {} file{}", folder.string(), fmt::join(kDataTypes, ", "),
                foreign.empty() ? "" : fmt::format(": convert {} to JSON lines first", foreign));
  std::vector<fs::path>& found = *first;
  std::sort(found.begin(), found.end());
  for (const fs::path& file : found) {
    const auto words = name_words(file, folder);
    const auto has = [&](Words marks) {
      return std::any_of(marks.begin(), marks.end(), [&](auto m) { return words.contains(m); });
    };
    if (has({"train", "training"})) {
      train.push_back(file);
    } else if (!has({"test", "testing", "valid", "validation", "val", "dev", "eval", "evaluation"})) {
      unmarked.push_back(file);
    }
  }
  if (!train.empty()) return train;
  return unmarked.empty() ? found : unmarked;
}

void refuse_type(const std::string& where, const fs::path& file) {
  const std::string pointer = describe_pointer(io::File::open_read(file).lead(), file);
  if (!pointer.empty()) fail_config("{}: {}", where, pointer);
  fail_config("{}: {} is none of the files that qft reads ({}): convert it to JSON lines first", where, file.string(),
              fmt::join(kDataTypes, ", "));
}

std::optional<DatasetSpec> dataset_at(const std::string& name) {
  std::error_code code;
  const fs::path path = name;
  const bool folder = fs::is_directory(path, code);
  if (!folder && !fs::is_regular_file(path, code)) return std::nullopt;
  return dataset_of(folder ? data_files_in(path) : std::vector<fs::path>{path}, name);
}

DatasetSpec dataset_of(std::vector<fs::path> files, const std::string& name) {
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
  describe(seen, where, spec);
  log::info("dataset {}: {} file(s) from {}, as {}", name, spec.files.size(), spec.files.front().string(),
            read_columns(spec.columns, seen));
  return spec;
}

}  // namespace qft::encode
