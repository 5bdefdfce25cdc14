// The prompts of a file in any form that training data have. Private to eval.
#pragma once

#include "qft/config/run_config.h"
#include "qft/encode/chat_template.h"
#include "qft/model/config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qft::eval {

/// A record to be answered, or why it cannot be.
struct Prompt {
  std::vector<std::int32_t> tokens;  ///< up to where the answer begins
  std::int64_t max_new_tokens = 0;
  bool shortened = false;  ///< the answer: by the model's positions
  std::string label;       ///< the record's own answer; empty: it has none
  std::string id;          ///< JSON of the record's member "id"; empty: it has none
  std::string error;       ///< "data/a.jsonl:7: why"; empty: it can be answered
  bool blank = false;      ///< a blank line of a text file: nothing is asked

  bool is_asked() const { return !blank && error.empty(); }
};

struct Prompts {
  std::vector<Prompt> all;  ///< by number of the record
  std::string hash;         ///< of the files' bytes and all tokens
  std::vector<std::int32_t> stop_ids;
  encode::ChatTemplate chat;

  std::int64_t blanks() const;
  std::int64_t errors() const;
  /// The first one; empty: there is none.
  std::string first_error() const;
};

/// The records of `input`: a file or folder as `dataset` may name, a name of dataset_info.json, or "-" for standard input (JSON
/// if it begins with { or [, else a prompt a line). A record's tokens are those that training has before its last answer. A
/// record that cannot be answered has an error, and so does one whose prompt fills the model's positions. Not collective. Throws
/// ConfigError or Error if `input` is no data at all, or none of its records can be answered.
Prompts read_prompts(const std::string& input, const config::RunConfig& config, const model::ModelConfig& model);

}  // namespace qft::eval
