// A YAML template as the Jinja chat template that a model trained with it is saved with: transformers, llama.cpp and servers
// render by it the text that qft trains on.
#pragma once

#include "qft/encode/template_spec.h"

#include <optional>
#include <string>

namespace qft::encode {

/// What shapes the text beside the YAML file (of which default_system and tool_format are set already).
struct JinjaOptions {
  std::string bos = {}, eos = {};  ///< texts of the tokens that {{bos_token}} and {{eos_token}} stand for; empty: there is none
  std::optional<bool> enable_thinking = true;
  bool preserve_thinking = false;
  bool last_thought_only = false;      ///< training takes thoughts from earlier answers (mask_history)
  std::string image = {}, video = {};  ///< what stands for one in the text; empty: messages with one are refused
};

/// The template's variables: messages (role system, developer, user, assistant, tool; content as a text or a list of blocks;
/// reasoning_content, reasoning or thinking; tool_calls or function_call), tools, add_generation_prompt, enable_thinking (without
/// it as trained). A conversation reads as in training; with add_generation_prompt a prompt reads as that of qft generate.
std::string to_jinja(const TemplateSpec& spec, const JinjaOptions& options);

/// The token that ends an answer: the first mark behind its text that is the end token or a stop word; nothing where an answer
/// ends without one.
std::optional<std::string> end_of_answer(const TemplateSpec& spec, const std::string& eos);

}  // namespace qft::encode
