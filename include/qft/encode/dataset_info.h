// dataset_info.json: what each named dataset is, with LLaMA-Factory's keys and defaults.
#pragma once

#include "qft/encode/split.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qft::encode {

/// turns: messages that hold a question and its answer each, under tags.user and tags.assistant. blocks: openai's messages,
/// whose contents are lists of blocks, as LLaMA-Factory's version 1 writes them.
enum class Formatting { alpaca, sharegpt, openai, turns, blocks };

/// Names of a record's columns; "" where the dataset has none. Of pairs without `chosen`, or with the column of `messages` as
/// such, the conversation ends with the chosen answer. An entry with `columns` has just the ones it names.
struct ColumnNames {
  std::string prompt = "instruction", query = "input", response = "output", history;
  std::string messages = "conversations";
  std::string system, tools, chosen, rejected, kto_tag;
  std::string label;              // of texts that a classifier learns: a conversation may end with the question then
  std::string category;           // qft's own: what curricula sort by
  std::string weight;             // qft's own: what the record's labels count
  std::string documents;          // qft's own: a list of objects, for the model's own chat template
  std::string template_kwargs;    // TRL's chat_template_kwargs: variables of that template, of the record alone
  std::vector<std::string> tags;  // qft's own: carried into the pack as they are

  bool operator==(const ColumnNames&) const = default;
};

/// The words inside a message; "" where the dataset has none. An entry with `tags` has just the ones it names.
struct MessageTags {
  std::string role = "from", content = "value";
  std::string user = "human", assistant = "gpt", observation = "observation", function = "function_call";
  std::string system = "system";
};

/// The kinds of values that what the first records decide may depend on; bits.
enum ValueKind : unsigned { text_value = 1, flag_value = 2, number_value = 4, binary_number = 8, list_value = 16 };

/// A column that none of the first records has, and that would have been read otherwise than it is, had one of them had it.
struct LaterColumn {
  std::string name;
  unsigned kinds = 0;      // of ValueKind: values for which that holds
  std::string reason;      // what would have been
  std::string instead_of;  // the column that is read for the same; records without that one must not have this one
};

struct DatasetSpec {
  std::string name;
  Formatting formatting = Formatting::alpaca;
  bool ranking = false;
  bool of_v1 = false;  // by LLaMA-Factory's version 1: nothing between prompt and query; system and tools may be missing
  Split split;
  std::string template_name;                // of its samples; empty: the run's
  std::optional<std::int64_t> num_samples;  // drawn by the seed; above the dataset's size some are repeated
  ColumnNames columns;
  MessageTags tags;
  std::string described_in = "the defaults";  // who names the columns, for messages: "data/dataset_info.json: alpaca"
  std::string tags_from = "the defaults";     // who names the tags
  std::vector<std::filesystem::path> files;   // of one type, in order
  // Where the first records decide all this: the columns that none of them has, which later ones may have, and those that they
  // must not have.
  bool by_first_records = false;
  std::vector<std::string> unseen = {};
  std::vector<LaterColumn> later = {};

  /// Every column that the entry names and that some record must have, in the order above.
  std::vector<std::string> named_columns() const;
};

/// Where datasets of a hub lie on this node: folders by HubDataset::key.
using HubFolders = std::map<std::string, std::string, std::less<>>;

/// The entries of `names` in `dataset_dir`/dataset_info.json; "FILE.yaml:name" is what FILE.yaml describes under that name, as
/// LLaMA-Factory's version 1 does; else the files or folders of these names, whose format is told from
/// their first records (by what `stage` learns from; empty: any); "name#500" is `name` with num_samples 500. Datasets of a hub
/// are read from `folders`. Throws ConfigError naming file, dataset and key for what is missing, unknown, unsupported (a script,
/// images) or outside the folder.
std::vector<DatasetSpec> load_dataset_info(const std::filesystem::path& dataset_dir, std::span<const std::string> names,
                                           const HubFolders& folders = {}, std::string_view stage = {});

/// The dataset_info.json that `dataset_dir` names on this node, whether it is there or not; empty for "ONLINE".
std::filesystem::path dataset_info_file(const std::filesystem::path& dataset_dir, const HubFolders& folders = {});

/// A dataset that lies on a hub.
struct HubDataset {
  std::string key;     ///< "dataset:owner/name"
  std::string hub;     ///< "huggingface" or "modelscope" where its entry says so; else empty
  std::string id;      ///< "owner/name", or "owner/name@revision"
  std::string folder;  ///< of the repository, which its entry names; else empty
};
/// Those of `names` that lie on a hub: by hf_hub_url or ms_hub_url of their entry (the latter where `modelscope`, or where there
/// is no other), or by their name, if it is no entry, file or folder. With "REMOTE:owner/name" as `dataset_dir` that one first,
/// and the others once it is in `folders`. Throws ConfigError where the file is none.
std::vector<HubDataset> hub_datasets(const std::filesystem::path& dataset_dir, std::span<const std::string> names,
                                     bool modelscope = false, const HubFolders& folders = {});

}  // namespace qft::encode
