// Reads prompts from a file in any format that training data may have. Private to eval.
#pragma once

#include "qft/config/run_config.h"
#include "qft/encode/chat_template.h"
#include "qft/model/config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qft::eval {

/// A record to answer, or the reason why it cannot be answered.
struct Prompt {
  std::vector<std::int32_t> tokens;  ///< everything before the answer
  std::int64_t max_new_tokens = 0;
  bool shortened = false;  ///< the model's positions limit max_new_tokens
  std::string label;       ///< the record's own answer; empty: none
  std::string id;          ///< JSON of the record's member "id"; empty: none
  std::string error;       ///< "data/a.jsonl:7: reason"; empty: the record can be answered
  bool blank = false;      ///< a blank line of a text file, which gets no answer

  bool is_asked() const { return !blank && error.empty(); }
};

struct Prompts {
  std::vector<Prompt> all;  ///< by record number
  std::string hash;         ///< over the files' bytes and all tokens
  std::vector<std::int32_t> stop_ids;
  encode::ChatTemplate chat;

  std::int64_t blanks() const;
  std::int64_t errors() const;
  /// Returns the first error; empty if there is none.
  std::string first_error() const;
};

/// Reads the records of `input`: a file or folder as `dataset` may name, a dataset name from dataset_info.json, or "-" for
/// standard input (JSON if it begins with { or [, else one prompt per line). A record's tokens are the tokens before its last
/// answer in training. A record that cannot be answered has an error, also if its prompt fills the model's positions. Not
/// collective. Throws ConfigError or Error if `input` is not data, or none of its records can be answered.
Prompts read_prompts(const std::string& input, const config::RunConfig& config, const model::ModelConfig& model);

}  // namespace qft::eval
