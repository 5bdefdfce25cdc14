// Converts a YAML template to the Jinja chat template that is saved with a model: with it transformers, llama.cpp and servers
// render the same text that qft trains on.
#pragma once

#include "qft/encode/template_spec.h"

#include <optional>
#include <string>

namespace qft::encode {

/// Settings besides the YAML file that affect the text. The caller has already set default_system and tool_format in the
/// TemplateSpec.
struct JinjaOptions {
  std::string bos = {}, eos = {};  ///< texts of the tokens for {{bos_token}} and {{eos_token}}; empty: there is none
  std::optional<bool> enable_thinking = true;
  bool preserve_thinking = false;
  bool last_thought_only = false;  ///< training removes thoughts from earlier answers (mask_history)
  /// placeholders for an image and a video in the text; empty: messages with one are refused
  std::string image = {}, video = {};
};

/// The template's variables: messages (role system, developer, user, assistant, tool; content as a text or a list of blocks;
/// reasoning_content, reasoning or thinking; tool_calls or function_call), tools, add_generation_prompt, enable_thinking (if
/// absent: as trained). A conversation renders as in training; with add_generation_prompt, a prompt renders as in qft generate.
std::string to_jinja(const TemplateSpec& spec, const JinjaOptions& options);

/// Returns a template for pairs of a query and a document, as stage reranker encodes them. It takes sentence-transformers'
/// messages of the roles query and document, and a system message with the instruction. `conversation`: the Jinja template of the
/// same format for conversations.
std::string ranking_jinja(const TemplateSpec& spec, const std::string& conversation);

/// Returns the token that ends an answer: the first mark after its text that is the end token or a stop word; nothing if an
/// answer ends without one.
std::optional<std::string> end_of_answer(const TemplateSpec& spec, const std::string& eos);

}  // namespace qft::encode
