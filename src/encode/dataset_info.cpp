#include "qft/encode/dataset_info.h"

#include "qft/comm/session.h"
#include "qft/config/nearest.h"
#include "qft/config/run_config.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/hub.h"
#include "qft/core/json.h"
#include "qft/core/log.h"
#include "qft/io/file.h"

#include <algorithm>
#include <array>
#include <set>

#include "dataset_path.h"
#include "dataset_yaml.h"
#include "hub_data.h"
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace qft::encode {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// An entry and its place, for messages.
struct Entry {
  const json& value;
  std::string where;   // "data/dataset_info.json: alpaca"
  bool of_v1 = false;  // in a YAML file of LLaMA-Factory's version 1
};

constexpr std::pair<std::string_view, std::string ColumnNames::*> kColumns[] = {
    {"prompt", &ColumnNames::prompt},       {"query", &ColumnNames::query},
    {"response", &ColumnNames::response},   {"history", &ColumnNames::history},
    {"messages", &ColumnNames::messages},   {"system", &ColumnNames::system},
    {"tools", &ColumnNames::tools},         {"chosen", &ColumnNames::chosen},
    {"rejected", &ColumnNames::rejected},   {"kto_tag", &ColumnNames::kto_tag},
    {"label", &ColumnNames::label},         {"positive", &ColumnNames::positive},
    {"category", &ColumnNames::category},   {"weight", &ColumnNames::weight},
    {"documents", &ColumnNames::documents}, {"chat_template_kwargs", &ColumnNames::template_kwargs},
};
constexpr std::pair<std::string_view, std::string MessageTags::*> kTags[] = {
    {"role_tag", &MessageTags::role},
    {"content_tag", &MessageTags::content},
    {"user_tag", &MessageTags::user},
    {"assistant_tag", &MessageTags::assistant},
    {"observation_tag", &MessageTags::observation},
    {"function_tag", &MessageTags::function},
    {"system_tag", &MessageTags::system},
};
constexpr std::array kFormattings{
    std::pair{std::string_view("alpaca"), Formatting::alpaca}, std::pair{std::string_view("sharegpt"), Formatting::sharegpt},
    std::pair{std::string_view("openai"), Formatting::openai}, std::pair{std::string_view("blocks"), Formatting::blocks}};
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {"om_hub_url", "is on the Modelers hub"},
    {"script_url", "is made by a Python script"},
    {"cloud_file_name", "is in cloud storage"},
};
constexpr std::string_view kEntryKeys[] = {"file_name",  "file_sha1",  "formatting", "ranking",  "num_samples",
                                           "columns",    "tags",       "split",      "subset",   "folder",
                                           "hf_hub_url", "ms_hub_url", "om_hub_url", "template", "min_label"};
constexpr double kSimilarPair = 0.75;  // the least score of a pair in ms-swift's subset stsb:positive
constexpr std::string_view kMediaColumns[] = {"images", "videos", "audios"};

std::string text_or_none(const Entry& entry, std::string_view key, const json& value) {
  if (value.is_null()) return {};
  if (!value.is_string()) fail_config("{}: {}: expected a text, got {}", entry.where, key, value.dump());
  return value.get<std::string>();
}

template <class Table>
std::vector<std::string_view> names_in(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto& row : table) names.push_back(row.first);
  return names;
}

// Under an unread name, a column or tag would silently be missing from the samples.
[[noreturn]] void fail_unknown(const Entry& entry, const char* section, const std::string& key,
                               std::vector<std::string_view> known) {
  fail_config("{}: {}: {}: unknown key{}", entry.where, section, key,
              config::suggestion(key, known, fmt::format("the keys are {}", fmt::join(known, ", "))));
}

// Unknown entry keys may be remarks: LLaMA-Factory ignores them. Only rank 0 warns.
void warn_unknown(const Entry& entry, const std::string& key) {
  if (comm::Session::exists() && comm::Session::current().rank() != 0) return;
  log::warn("{}: {}: unknown key, ignored{}", entry.where, key, config::suggestion(key, kEntryKeys, "qft has no such key"));
}

void read_columns(const Entry& entry, ColumnNames& columns) {
  const json& object = entry.value["columns"];
  if (!object.is_object()) fail_config("{}: columns: expected an object", entry.where);
  columns = {};
  for (const auto& [key, member] : kColumns) (columns.*member).clear();
  for (const auto& [key, value] : object.items()) {
    const auto known = std::find_if(std::begin(kColumns), std::end(kColumns), [&name = key](auto& c) { return c.first == name; });
    if (known != std::end(kColumns)) {
      columns.*known->second = text_or_none(entry, "columns: " + key, value);
    } else if (key == "tags") {
      if (!value.is_array()) fail_config("{}: columns: tags: expected a list of columns", entry.where);
      for (const json& name : value) columns.tags.push_back(text_or_none(entry, "columns: tags", name));
    } else if (key == "negative") {
      for (const json& name : value.is_array() ? value : json::array({value}))
        if (!name.is_null()) columns.negatives.push_back(text_or_none(entry, "columns: negative", name));
    } else if (std::find(std::begin(kMediaColumns), std::end(kMediaColumns), key) != std::end(kMediaColumns)) {
      if (!value.is_null())
        fail_config("{}: columns: {}: qft trains on text only; remove the column to train on the texts", entry.where, key);
    } else {
      auto names = names_in(kColumns);
      names.insert(names.end(), {"negative", "tags"});
      names.insert(names.end(), std::begin(kMediaColumns), std::end(kMediaColumns));
      fail_unknown(entry, "columns", key, names);
    }
  }
}

void read_tags(const Entry& entry, MessageTags& tags) {
  const json& object = entry.value["tags"];
  if (!object.is_object()) fail_config("{}: tags: expected an object", entry.where);
  for (const auto& [key, member] : kTags) (tags.*member).clear();
  for (const auto& [key, value] : object.items()) {
    const auto known = std::find_if(std::begin(kTags), std::end(kTags), [&name = key](auto& t) { return t.first == name; });
    if (known == std::end(kTags))
      fail_unknown(entry, "tags", key, names_in(kTags));
    else
      tags.*known->second = text_or_none(entry, "tags: " + key, value);
  }
}

// Joins `name` to the folder; rejects relative names that leave the folder.
fs::path resolve(const Entry& entry, const fs::path& dataset_dir, const std::string& name, const HubFolders& folders) {
  if (name.empty()) fail_config("{}: file_name is empty", entry.where);
  const fs::path path = name;
  if (path.is_absolute()) return local_copy_of(path.lexically_normal(), folders);
  const fs::path inside = path.lexically_normal();
  if (!inside.empty() && *inside.begin() == "..")
    fail_config("{}: file_name '{}' leads out of {}; use an absolute path if you mean that", entry.where, name,
                dataset_dir.string());
  return dataset_dir / inside;
}

void add_files(const Entry& entry, const fs::path& path, std::vector<fs::path>& files) {
  if (fs::is_directory(path)) {
    std::vector<fs::path> found;
    for (const fs::directory_entry& file : fs::directory_iterator(path)) {
      if (file.is_symlink() && !file.exists())  // skipping it would lose its records silently
        fail_config("{}: the link {} points to {}, which does not exist; restore that file, or remove the link", entry.where,
                    file.path().string(), fs::read_symlink(file.path()).string());
      if (file.is_regular_file()) found.push_back(file.path());
    }
    std::sort(found.begin(), found.end());
    if (found.empty()) fail_config("{}: the folder {} has no files", entry.where, path.string());
    files.insert(files.end(), found.begin(), found.end());
  } else if (fs::exists(path)) {
    files.push_back(path);
  } else {
    fail_config("{}: there is no {}", entry.where, path.string());
  }
}

void check_types(const Entry& entry, const std::vector<fs::path>& files) {
  const auto kind = [](const fs::path& file) { return file_ending(file) == ".txt"; };
  for (const fs::path& file : files) {
    if (!is_data_file(file)) refuse_type(entry.where, file);
    if (kind(file) != kind(files.front()))
      fail_config("{}: {} and {} are of different types", entry.where, files.front().string(), file.string());
  }
}

/// Returns the files of a hub dataset; sets `split` to the part of the split that selects records.
std::vector<fs::path> hub_entry_files(const Entry& entry, const HubDataset& hub, const HubFolders& folders, json& split) {
  const auto text = [&](const char* key) {
    return entry.value.contains(key) ? text_or_none(entry, key, entry.value[key]) : std::string();
  };
  std::string name = text("split");
  const std::size_t end = std::min(name.find('['), name.size());
  split = "train" + name.substr(end);
  name.resize(end);
  // Version 1 uses a local folder of that name instead of the repository.
  const fs::path root =
      entry.of_v1 && fs::is_directory(hub.id) ? fs::path(hub.id) : fs::path(fetched_folder(hub.id, entry.where, folders));
  const auto files = hub_files(root, {.folder = hub.folder, .subset = text("subset"), .split = name}, entry.where);
  check_types(entry, files);
  return files;
}

std::vector<fs::path> read_files(const Entry& entry, const fs::path& dataset_dir, const HubFolders& folders) {
  for (const auto& [key, reason] : kRefused)
    if (entry.value.contains(key))
      fail_config("{}: {}: the dataset {}, and qft reads files only. Download it once as JSON lines and name it by file_name",
                  entry.where, key, reason);
  if (!entry.value.contains("file_name")) fail_config("{}: has no file_name", entry.where);
  std::vector<fs::path> files;
  const json& names = entry.value["file_name"];
  for (const json& name : names.is_array() ? names : json::array({names}))
    add_files(entry, resolve(entry, dataset_dir, text_or_none(entry, "file_name", name), folders), files);
  if (files.empty()) fail_config("{}: file_name: the list is empty", entry.where);
  check_types(entry, files);
  return files;
}

bool flag(const Entry& entry, std::string_view key) {
  const json& value = entry.value[std::string(key)];
  if (!value.is_boolean()) fail_config("{}: {}: expected true or false, got {}", entry.where, key, value.dump());
  return value.get<bool>();
}

void read_option(const Entry& entry, const std::string& key, const json& value, DatasetSpec& spec) {
  if (key == "formatting") {
    const std::string word = text_or_none(entry, key, value);
    const auto known = std::find_if(kFormattings.begin(), kFormattings.end(), [&](const auto& f) { return f.first == word; });
    if (known == kFormattings.end())
      fail_config("{}: formatting '{}' is unknown; use alpaca, sharegpt, openai or blocks", entry.where, word);
    spec.formatting = known->second;
  } else if (key == "ranking") {
    spec.ranking = flag(entry, key);
  } else if (key == "num_samples") {
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1)
      fail_config("{}: num_samples: expected a whole number of at least 1, got {}", entry.where, value.dump());
    spec.num_samples = value.get<std::int64_t>();
  } else if (key == "min_label") {
    if (!value.is_number()) fail_config("{}: min_label: expected a number, got {}", entry.where, value.dump());
    spec.min_label = value.get<double>();
  } else if (key == "template") {
    spec.template_name = text_or_none(entry, key, value);
  } else if (key == "columns") {
    read_columns(entry, spec.columns);
  } else if (key == "tags") {
    read_tags(entry, spec.tags);
  } else if (key == "split") {
    if (!value.is_null()) spec.split = Split(text_or_none(entry, key, value), entry.where);
  } else if (std::find(std::begin(kEntryKeys), std::end(kEntryKeys), key) == std::end(kEntryKeys)) {
    warn_unknown(entry, key);
  }
}

// Returns the source of the names of columns or tags.
std::string section_of(const Entry& entry, const char* section) {
  return entry.value.contains(section) ? fmt::format("{} in {}", section, entry.where)
                                       : fmt::format("the defaults: {} has no {}", entry.where, section);
}

/// An anchor is one text with its documents; what else belongs to a conversation is not read.
void check_anchor(const Entry& entry, const DatasetSpec& spec) {
  constexpr std::string_view kOfConversations[] = {"response", "history", "tools",     "chosen",
                                                   "rejected", "kto_tag", "documents", "chat_template_kwargs"};
  const bool has_messages = spec.formatting != Formatting::alpaca;
  for (const auto& [key, member] : kColumns)
    if (const bool unread =
            std::ranges::find(kOfConversations, key) != std::end(kOfConversations) || (has_messages && key == "query");
        unread && !(spec.columns.*member).empty())
      fail_config("{}: columns: {} is '{}', but records with positive are anchors and their documents: remove it", entry.where,
                  key, spec.columns.*member);
}

void check(const Entry& entry, const DatasetSpec& spec) {
  if (spec.ranking && (spec.columns.chosen.empty() || spec.columns.rejected.empty()))
    fail_config("{}: ranking: columns: chosen and rejected are needed", entry.where);
  if (spec.columns.positive.empty() && !spec.columns.negatives.empty())
    fail_config("{}: columns: negative is given without positive: name the column of the positive documents", entry.where);
  if (!spec.columns.positive.empty()) check_anchor(entry, spec);
  if (spec.formatting == Formatting::alpaca) return;
  if (spec.columns.messages.empty()) fail_config("{}: columns: messages is needed: the column of the conversation", entry.where);
  if (spec.tags.role.empty() || spec.tags.content.empty())
    fail_config("{}: tags: role_tag and content_tag are needed: the keys inside a message", entry.where);
}

// A missing file counts as an empty one, which is enough for datasets given by path.
json read_info(const fs::path& file) {
  if (!fs::is_regular_file(file)) return json::object();
  try {
    const std::string text = io::read_text_file(file);
    json info = parse_json(text, file.string());
    require_single_keys(text, file.string());
    require(info.is_object(),
            "{}: expected an object of datasets, got {}: write {{\"NAME\": {{\"file_name\": \"FILE.json\"}}, ...}}",
            file.string(), info.is_array() ? "a list" : info.dump().substr(0, 40));
    return info;
  } catch (const Error& e) {
    throw ConfigError(e.what());
  }
}

std::string list_names(const json& info) {
  std::string names;
  for (const auto& [name, entry] : info.items()) {
    if (names.size() > 400) return names + ", ...";
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

// Splits "name#500" into the name and the number.
std::pair<std::string, std::string> split_sample(const std::string& name) {
  const std::size_t mark = name.rfind('#');
  if (mark == name.npos) return {name, {}};
  const std::string sample = name.substr(mark + 1);
  if (sample.empty() || sample.size() > 15 || sample.find_first_not_of("0123456789") != sample.npos ||
      sample.find_first_not_of('0') == sample.npos)
    fail_config("dataset: '{}': after # must be the number of records to draw, a whole number of at least 1", name);
  return {name.substr(0, mark), sample};
}

[[noreturn]] void fail_unknown(const std::string& name, const fs::path& info_file, const json& info) {
  if (const std::size_t colon = name.rfind(':'); colon != name.npos && fs::exists(name.substr(0, colon)))
    fail_config("dataset: '{}': '{}' names a part of a hub dataset; name its file in {} instead", name, name.substr(colon),
                name.substr(0, colon));
  std::string text = fs::is_regular_file(info_file)
                         ? fmt::format("{} has no '{}'; it has {}", info_file.string(), name, list_names(info))
                         : fmt::format("'{}': there is no {}", name, info_file.string());
  text += ", and there is no such file or folder either";
  if (name.find(' ') != name.npos) text += ": separate datasets by commas";
  if (is_hub_name(name)) text += ". " + fetch_hint("dataset", name.substr(0, name.find(':')));
  fail_config("dataset: {}", text);
}

/// dataset_dir and the content of its dataset_info.json.
struct Folder {
  const HubFolders& folders;
  const config::Stage* stage;  // stage that reads the records; null: any
  fs::path dir, info_file;
  json info;
  bool of_v1 = false;  // read from YAML of LLaMA-Factory's version 1

  /// "ONLINE" has no file; "REMOTE:owner/name" is on a hub.
  Folder(const std::string& name, const HubFolders& where, const config::Stage* reader = nullptr)
      : folders(where),
        stage(reader),
        dir(folder_of(name, where)),
        info_file(dir / "dataset_info.json"),
        info(name == "ONLINE" ? json::object() : read_info(info_file)) {}

  /// Reads a YAML description in place of dataset_info.json.
  Folder(fs::path yaml, const Folder& other)
      : folders(other.folders),
        stage(other.stage),
        info_file(std::move(yaml)),
        info(read_dataset_yaml(info_file, stage)),
        of_v1(true) {}

  /// Returns the entry's name and the number of records to draw. A path may contain a #.
  std::pair<std::string, std::string> split_name(const std::string& name) const {
    std::error_code code;
    return info.contains(name) || folders.contains(name) || fs::exists(name, code) ? std::pair{name, std::string()}
                                                                                   : split_sample(name);
  }

  Entry entry_of(const std::string& name) const {
    const Entry entry{info.at(name), info_file.string() + ": " + name, of_v1};
    if (!entry.value.is_object())
      fail_config("{}: expected an object, got {}: write {{\"file_name\": \"FILE.json\"}}", entry.where,
                  entry.value.is_array() ? "a list" : entry.value.dump().substr(0, 40));
    return entry;
  }

  std::optional<HubDataset> on_hub(const std::string& name, bool modelscope) const {
    const std::string plain = split_name(name).first, id = plain.substr(0, plain.rfind(':'));
    std::error_code code;
    if (const auto part = part_of_yaml(plain)) return Folder(part->first, *this).on_hub(part->second, modelscope);
    if (info.contains(plain)) {
      auto hub = hub_of(entry_of(plain).value, modelscope);
      return hub && of_v1 && fs::is_directory(hub->id, code) ? std::nullopt : std::move(hub);
    }
    if (fs::exists(plain, code) || fs::exists(id, code) || !is_hub_name(id)) return std::nullopt;
    return HubDataset{hub_key(id), "", id, ""};
  }

  DatasetSpec load(const std::string& name) const {
    const auto [plain, sample] = split_name(name);
    const auto part = part_of_yaml(plain);
    DatasetSpec spec = part ? load_part(part->first, part->second) : info.contains(plain) ? load_entry(plain) : load_path(plain);
    spec.name = plain;
    if (!sample.empty()) spec.num_samples = std::stoll(sample);
    return spec;
  }

 private:
  DatasetSpec load_part(const fs::path& yaml, const std::string& name) const {
    const Folder described(yaml, *this);
    if (!described.info.contains(name))
      fail_config("dataset: {} has no '{}'; it has {}", yaml.string(), name, list_names(described.info));
    DatasetSpec spec = described.load_entry(name);
    spec.of_v1 = true;
    return spec;
  }

  DatasetSpec load_path(const std::string& name) const {
    const auto copy = folders.find(name);  // on this node's local disk
    if (auto spec = dataset_at(copy == folders.end() ? name : copy->second, name, stage)) return std::move(*spec);
    const std::size_t colon = name.rfind(':');
    const std::string id = name.substr(0, colon);
    // ms-swift's name for the similar pairs of this dataset
    if (name == "sentence-transformers/stsb:positive") {
      DatasetSpec spec = load_path(id);
      spec.min_label = kSimilarPair;
      return spec;
    }
    if (!folders.contains(hub_key(id))) fail_unknown(name, info_file, info);
    const HubPart part{.subset = colon == name.npos ? "" : name.substr(colon + 1)};
    return dataset_of(hub_files(fetched_folder(id, name, folders), part, "dataset " + name), name, stage);
  }

  DatasetSpec load_entry(const std::string& name) const {
    const Entry entry = entry_of(name);
    DatasetSpec spec;
    spec.name = name;
    json split;
    // Use the hub from which it was downloaded.
    auto hub = hub_of(entry.value, true);
    if (hub && !folders.contains(hub->key)) hub = hub_of(entry.value, false);
    spec.files = hub ? hub_entry_files(entry, *hub, folders, split) : read_files(entry, dir, folders);
    spec.columns_from = section_of(entry, "columns");
    spec.tags_from = section_of(entry, "tags");
    for (const auto& [key, value] : entry.value.items()) read_option(entry, key, hub && key == "split" ? split : value, spec);
    check(entry, spec);
    spec.passages = !spec.columns.positive.empty();
    return spec;
  }
};

}  // namespace

std::vector<std::string> DatasetSpec::named_columns() const {
  const bool is_alpaca = formatting == Formatting::alpaca;
  std::vector<std::string> names;
  for (const auto& [key, member] : kColumns) {
    const bool of_alpaca = key == "prompt" || key == "query" || key == "response" || key == "history";
    if (is_alpaca ? key == "messages" : of_alpaca) continue;
    if (key == "documents" || key == "chat_template_kwargs") continue;  // optional in records
    const bool of_pairs = key == "chosen" || key == "rejected";
    if (of_pairs && !ranking) continue;
    if (key == "response" && (ranking || passages)) continue;
    if (key == "query" && columns.query == ColumnNames().query) continue;  // alpaca files often omit "input"
    if ((formatting == Formatting::openai || of_v1) && (key == "system" || key == "tools")) continue;  // optional
    const std::string& name = columns.*member;
    if (!name.empty() && std::ranges::find(optional_columns, name) == optional_columns.end()) names.push_back(name);
  }
  names.insert(names.end(), columns.tags.begin(), columns.tags.end());
  return names;
}

std::vector<DatasetSpec> load_dataset_info(const fs::path& dataset_dir, std::span<const std::string> names,
                                           const HubFolders& folders, std::string_view stage) {
  const Folder folder(dataset_dir.string(), folders, stage.empty() ? nullptr : &config::stage_of(stage));
  if (names.empty() && !fs::is_regular_file(folder.info_file)) fail_config("there is no {}", folder.info_file.string());
  std::vector<DatasetSpec> specs;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) fail_config("dataset: '{}' is named twice", name);
    specs.push_back(folder.load(name));
  }
  return specs;
}

std::string_view stage_for_datasets(const config::RunConfig& config) {
  return config.is_given("stage") ? std::string_view(config.finetuning.stage) : std::string_view();
}

fs::path dataset_info_file(const fs::path& dataset_dir, const HubFolders& folders) {
  return dataset_dir == "ONLINE" ? fs::path() : folder_of(dataset_dir.string(), folders) / "dataset_info.json";
}

std::vector<HubDataset> hub_datasets(const fs::path& dataset_dir, std::span<const std::string> names, bool modelscope,
                                     const HubFolders& folders) {
  std::vector<HubDataset> found;
  if (const std::string id = remote_id(dataset_dir.string()); !id.empty()) {
    found.push_back({hub_key(id), "", id, ""});
    if (!folders.contains(found.back().key)) return found;
  }
  const Folder folder(dataset_dir.string(), folders);
  for (const std::string& name : names)
    if (auto hub = folder.on_hub(name, modelscope)) found.push_back(std::move(*hub));
  return found;
}

}  // namespace qft::encode
