#include "qft/pack/inputs.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/ranges.h>

namespace qft::pack {

using nlohmann::json;

namespace {

// Returns 12345678 as 12,345,678.
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

// Returns the entry with that name in a list of objects; null if there is none.
json named(const json& list, const std::string& name) {
  for (const json& entry : list)
    if (entry.value("name", "") == name) return entry;
  return {};
}

// Returns which files of a changed dataset have changed, judged by their sizes.
std::string changed_files(const json& was, const json& is) {
  const std::vector<PackFile> before = files_from_json(was), now = files_from_json(is);
  if (before.empty() || now.empty()) return "its files have changed";
  const auto find = [](const std::vector<PackFile>& files, const std::string& name) {
    return std::find_if(files.begin(), files.end(), [&](const PackFile& file) { return file.name == name; });
  };
  std::vector<std::string> changes, names;
  for (const PackFile& file : now) {
    names.push_back(file.name);
    if (const auto old = find(before, file.name); old == before.end())
      changes.push_back(fmt::format("{} is new", file.name));
    else if (old->bytes != file.bytes)
      changes.push_back(
          fmt::format("{} has changed (was {} bytes, now {})", file.name, grouped(old->bytes), grouped(file.bytes)));
  }
  for (const PackFile& file : before)
    if (find(now, file.name) == now.end()) changes.push_back(fmt::format("{} is no longer there", file.name));
  if (changes.empty() && now.size() == 1)
    return fmt::format("{} has changed ({} bytes, as before)", names.front(), grouped(now.front().bytes));
  if (changes.empty())
    return fmt::format("one or more of {} have changed, or their order: the sizes are the same", fmt::join(names, ", "));
  return fmt::format("{}", fmt::join(changes, ", "));
}

// Lists datasets that were added, were removed, or have other contents.
void compare_sources(const json& before, const json& now, std::vector<std::string>& changes) {
  for (const json& source : now) {
    const auto name = source.at("name").get<std::string>();
    const json was = named(before, name);
    if (was.is_null())
      changes.push_back(fmt::format("dataset '{}' is new", name));
    else if (was.value("hash", "") != source.value("hash", ""))
      changes.push_back(fmt::format("dataset '{}': {}", name, changed_files(was, source)));
  }
  for (const json& source : before)
    if (const auto name = source.value("name", std::string()); named(now, name).is_null())
      changes.push_back(fmt::format("dataset '{}' is no longer there", name));
}

// Compares the datasets' entries of dataset_info.json.
void compare_entries(const json& before, const json& now, std::vector<std::string>& changes) {
  for (const json& entry : now) {
    const auto name = entry.value("name", std::string());
    const json was = named(before, name);
    if (was.is_null() || was == entry) continue;
    std::vector<std::string> keys;
    for (const auto& [key, value] : entry.items())
      if (was.value(key, json()) != value)
        keys.push_back(value.is_array() || key == "formatting"
                           ? key
                           : fmt::format("{} {} -> {}", key, was.value(key, json()).dump(), value.dump()));
    for (const auto& [key, value] : was.items())
      if (!entry.contains(key)) keys.push_back(fmt::format("{} {} -> null", key, value.dump()));
    changes.push_back(fmt::format("dataset '{}' is described differently in dataset_info.json: {}", name, fmt::join(keys, ", ")));
  }
}

// Returns "cutoff_len 128 -> 64" for each value that differs. Hashed contents are described in words.
std::string changes(const json& before, const json& now) {
  std::vector<std::string> found;
  const auto compare = [&](const std::string& key, const json& was, const json& is) {
    if (was == is || key == "sources" || key == "options" || key == "datasets") return;
    if (key == "tokenizer_hash")
      found.push_back("the tokenizer differs");
    else if (key == "template_hash")
      found.push_back("the text of the template has changed");
    else
      found.push_back(fmt::format("{} {} -> {}", key, was.dump(), is.dump()));
  };
  const auto compare_all = [&](const json& was, const json& is) {
    for (const auto& [key, value] : is.items()) compare(key, was.value(key, json()), value);
    for (const auto& [key, value] : was.items())
      if (!is.contains(key)) compare(key, value, json());
  };
  const json none = json::array(), empty = json::object();
  const json options = before.value("options", empty), own = now.value("options", empty);
  compare_sources(before.value("sources", none), now.value("sources", none), found);
  compare_entries(options.value("datasets", none), own.value("datasets", none), found);
  compare_all(before, now);
  compare_all(options, own);
  if (found.empty()) found.push_back("the order of its datasets has changed");
  return fmt::format("{}", fmt::join(found, "; "));
}

}  // namespace

json pack_inputs(const PackAttributes& a) {
  json inputs = {{"format", kPackFormatName},        {"format_version", kPackFormatVersion}, {"tokenizer_hash", a.tokenizer_hash},
                 {"template_hash", a.template_hash}, {"template", a.template_name},          {"stage", a.stage},
                 {"vocab_size", a.vocab_size},       {"cutoff_len", a.cutoff_len},           {"options", a.options},
                 {"sources", json::array()}};
  for (const PackSource& source : a.sources) inputs["sources"].push_back({{"name", source.name}, {"hash", source.hash}});
  return inputs;
}

json described_inputs(const PackAttributes& a) {
  json inputs = pack_inputs(a);
  for (std::size_t s = 0; s < a.sources.size(); ++s) inputs["sources"][s]["files"] = files_as_json(a.sources[s]);
  return inputs;
}

json files_as_json(const PackSource& source) {
  json files = json::array();
  for (const PackFile& file : source.files) files.push_back(json::array({file.name, file.bytes}));
  return files;
}

std::vector<PackFile> files_from_json(const json& source) {
  std::vector<PackFile> files;
  for (const json& file : source.value("files", json::array())) files.push_back({file.at(0), file.at(1)});
  return files;
}

std::string PackAttributes::fingerprint() const {
  return hash_hex(pack_inputs(*this).dump());
}

void require_same_pack(const json& position, const PackAttributes& attributes) {
  const json before = position.value("pack", json());
  if (before == attributes.fingerprint()) return;
  const std::string changed =
      position.contains("made_of") ? changes(position["made_of"], described_inputs(attributes)) : "it does not record its data";
  fail_config("cannot resume: the data differs from the checkpoint's: {}; set it back, or start a new run in another output_dir",
              changed);
}

}  // namespace qft::pack
