// dataset_info.json: describes each named dataset, with LLaMA-Factory's keys and defaults.
#pragma once

#include "qft/encode/record_order.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qft::config {
struct RunConfig;
}

namespace qft::encode {

/// turns: each message holds a question and its answer, under tags.user and tags.assistant. blocks: openai's messages with
/// lists of blocks as contents, as written by LLaMA-Factory's version 1.
enum class Formatting { alpaca, sharegpt, openai, turns, blocks };

/// Names of a record's columns; "" if the dataset has none. In pairs without `chosen`, or with `chosen` naming the `messages`
/// column, the conversation ends with the chosen answer. An entry with `columns` has only the columns that it names.
struct ColumnNames {
  std::string prompt = "instruction", query = "input", response = "output", history;
  std::string messages = "conversations";
  std::string system, tools, chosen, rejected, kto_tag;
  std::string label;            // for classification: the conversation may then end with the question
  std::string category;         // qft's own: the sort key of curricula
  std::string weight;           // qft's own: the weight of the record's labels
  std::string documents;        // qft's own: a list of objects, for the model's own chat template
  std::string template_kwargs;  // TRL's chat_template_kwargs: variables of that template for one record
  // Stages embedding and reranker: the documents of an anchor, which is in `prompt` or `messages`: of one column, of several.
  std::string positive;
  std::vector<std::string> negatives;
  std::vector<std::string> tags;  // qft's own: copied to the pack unchanged

  bool operator==(const ColumnNames&) const = default;
};

/// Keys and role names inside a message; "" if the dataset has none. An entry with `tags` has only the ones that it names.
struct MessageTags {
  std::string role = "from", content = "value";
  std::string user = "human", assistant = "gpt", observation = "observation", function = "function_call";
  std::string system = "system";
};

/// Kinds of values that the decision by the first records may depend on (bit flags).
enum ValueKind : unsigned { text_value = 1, flag_value = 2, number_value = 4, binary_number = 8, list_value = 16 };

/// A column that is absent in the first records. Had one of them had it, qft would have read the column differently.
struct LaterColumn {
  std::string name;
  unsigned kinds = 0;      // ValueKind bits: the values for which this holds
  std::string reason;      // how the column would have been read
  std::string instead_of;  // the column that is read in its place; records without that column must not have this one
};

struct DatasetSpec {
  std::string name;
  Formatting formatting = Formatting::alpaca;
  bool ranking = false;
  bool passages = false;           // records are an anchor with documents; it may have none
  bool passages_in_order = false;  // the columns have no known names: anchor, positive and negatives in the order of the records
  bool of_v1 = false;  // from LLaMA-Factory's version 1: nothing between prompt and query; system and tools may be missing
  Split split;
  std::string template_name;                // for this dataset's samples; empty: the run's template
  std::optional<double> min_label;          // records with a smaller label are left out
  std::optional<std::int64_t> num_samples;  // drawn with the seed; records repeat if this exceeds the dataset's size
  ColumnNames columns;
  MessageTags tags;
  std::string columns_from = "the defaults";  // source of the column names, for messages: "data/dataset_info.json: alpaca"
  std::string tags_from = "the defaults";     // source of the tags
  std::vector<std::filesystem::path> files;   // of one type, in order
  // If the first records decided all this: the columns that none of them has. Later records may have the columns in
  // `optional_columns`, but not the ones in `later`.
  bool by_first_records = false;
  std::vector<std::string> optional_columns = {};
  std::vector<LaterColumn> later = {};

  /// Every column that the entry names and that at least one record must have, in the order above.
  std::vector<std::string> named_columns() const;
};

/// Local folders of hub datasets on this node, by HubDataset::key.
using HubFolders = std::map<std::string, std::string, std::less<>>;

/// Returns the datasets with these `names`. A name is an entry of `dataset_dir`/dataset_info.json; or "FILE.yaml:name", an
/// entry of FILE.yaml as in LLaMA-Factory's version 1; or a file or folder, whose format is guessed from its first records (for
/// the needs of `stage`; empty: any). "name#500" is `name` with num_samples 500. Hub datasets are read from `folders`. Throws
/// ConfigError naming file, dataset and key if something is missing, unknown, unsupported (a script, images) or outside the
/// folder.
std::vector<DatasetSpec> load_dataset_info(const std::filesystem::path& dataset_dir, std::span<const std::string> names,
                                           const HubFolders& folders = {}, std::string_view stage = {});

/// Returns the stage to read the run's datasets for, before its packs are read; empty if it is not given, because a pack may set
/// it.
std::string_view stage_for_datasets(const config::RunConfig& config);

/// Returns the path of the dataset_info.json that `dataset_dir` names on this node, even if the file does not exist; empty for
/// "ONLINE".
std::filesystem::path dataset_info_file(const std::filesystem::path& dataset_dir, const HubFolders& folders = {});

/// A dataset on a hub.
struct HubDataset {
  std::string key;     ///< "dataset:owner/name"
  std::string hub;     ///< "huggingface" or "modelscope" if the entry says so; else empty
  std::string id;      ///< "owner/name", or "owner/name@revision"
  std::string folder;  ///< the folder inside the repository that the entry names; else empty
};
/// Returns the datasets among `names` that are on a hub: by their entry's hf_hub_url or ms_hub_url (the latter if `modelscope`
/// or if it is the only one), or by name if the name is not an entry, file or folder. If `dataset_dir` is "REMOTE:owner/name",
/// returns that dataset first, and the others once it is in `folders`. Throws ConfigError if the file is not a valid
/// dataset_info.json.
std::vector<HubDataset> hub_datasets(const std::filesystem::path& dataset_dir, std::span<const std::string> names,
                                     bool modelscope = false, const HubFolders& folders = {});

}  // namespace qft::encode
