// A chat template as described by its YAML file: the texts around each turn, independent of any tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qft::encode {

/// Names the template that comes with the tokenizer (chat_template.h).
inline constexpr std::string_view kOwnTemplate = "own";

/// One piece of a turn's text. Pieces are tokenised separately; a text piece may hold {{content}} once.
struct TurnPiece {
  enum class Kind { text, bos, eos } kind = Kind::text;
  std::string before;        // text before {{content}}, or the whole text
  bool has_content = false;  // true if {{content}} follows `before`
  std::string after;         // text after {{content}}
  bool operator==(const TurnPiece&) const = default;
};
using TurnFormat = std::vector<TurnPiece>;

/// The keys of a template file, with LLaMA-Factory's defaults for missing keys. In the texts, {{content}} stands for the
/// message, {{bos_token}} and {{eos_token}} for the tokenizer's tokens.
struct TemplateSpec {
  std::string name;
  TurnFormat prefix;  // before everything; default: nothing
  TurnFormat system;  // with the tool descriptions appended to the message
  TurnFormat user;    // up to the point at which the model starts to generate
  TurnFormat assistant;
  TurnFormat function;     // a call; default: as assistant
  TurnFormat observation;  // a call's result; default: as user
  std::string tool_format = "default";
  std::string default_system;
  std::vector<std::string> stop_words;
  std::string thought_open = "<think>\n", thought_close = "\n</think>\n\n";
  std::string call_open = "<tool_call>", call_close = "</tool_call>";
  std::string document_end;     // ends a document in stage pt; default: the tokenizer's end token
  bool reasoning = false;       // answers carry a thought, an empty one if the data has none
  bool replace_eos = false;     // the first stop word is the end token
  bool efficient_eos = false;   // the conversation's end token is added once, after the last turn
  bool system_in_user = false;  // the system message starts the first question's {{content}}
  // Stage reranker: the question, with {{instruction}}, {{query}} and {{document}} once each; empty: the query is the question
  // and the document its answer. `instruction`: for records without one.
  std::string ranking, instruction;
  std::string pack_only;  // model_type of the template's models if qft cannot train them; does not affect tokens
  std::string origin;     // the file, or "built in"

  /// XXH3-128 of everything that affects tokens: equal for the same template from another file.
  std::string hash() const;
  /// Every token of the form <|name|> in the texts, and the stop words: sorted, without duplicates.
  std::vector<std::string> special_tokens() const;
};

/// Reads a template from YAML text; `origin` appears in errors. Throws ConfigError "file:line: ...".
TemplateSpec parse_template(std::string_view yaml, const std::string& origin);

/// Finds a template by name, or by path if `name` has a slash or ends with .yaml or .yml. Searches $QFT_TEMPLATES, then
/// configs/templates in the share folder next to the program, then the built-in templates. Throws ConfigError with the nearest
/// name and the list of names.
TemplateSpec find_template(const std::string& name);

/// Replaces the template's tool format, and its plain call by the one that LLaMA-Factory uses with that format. Throws
/// ConfigError for an unknown name.
void set_tool_format(TemplateSpec& spec, const std::string& name);

/// The names that find_template() knows without a path, sorted.
std::vector<std::string> template_names();

/// Formats the names for messages, with the templates of models that qft cannot train at the end: "alpaca, ..., and for packs
/// only gemma, ...".
std::string list_templates();

/// Splits text with placeholders into pieces. Throws ConfigError starting with `where` for an unknown placeholder or a second
/// {{content}} in one piece.
TurnFormat parse_turn(std::string_view text, const std::string& where);

}  // namespace qft::encode
