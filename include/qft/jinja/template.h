// Chat templates: Jinja2 as transformers runs it for apply_chat_template (its immutable sandbox, trim_blocks, lstrip_blocks, loop
// controls, {% generation %}, its own tojson). Same text for the same variables, an error where it raises one.
//
// Left out, and refused by Template::parse with the line: block, extends, include, import, from (there is no other template to
// name), autoescape, the filters random and urlize, the global lipsum. What only shows a machine's address
// there (a generator or method printed as a text) is an error here.
#pragma once

#include "qft/core/error.h"
#include "qft/core/python_json.h"

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::jinja {

/// raise_exception(message) of a template: it refuses these variables (a conversation that its model never saw). what() names the
/// template and line; message() is the template's own text, to which the caller adds the record.
class TemplateRefusal : public Error {
 public:
  TemplateRefusal(const std::string& what, std::string message) : Error(what), message_(std::move(message)) {}
  const std::string& message() const noexcept { return message_; }

 private:
  std::string message_;
};

/// Bounds of one rendering; passing one is an Error that names it. A template is a stranger's program.
struct Limits {
  std::uint64_t steps = 50'000'000;                 ///< expressions, statements, items and 64-byte pieces of texts handled
  std::size_t depth = 1000;                         ///< expressions, statements and calls within each other
  std::size_t output_bytes = std::size_t{1} << 28;  ///< of the whole text
  std::size_t memory_bytes = std::size_t{1} << 30;  ///< of all values alive at a time
};

struct RenderOptions {
  /// What strftime_now() tells; not given: this machine's local time. Give it where renderings must be the same again.
  std::optional<std::tm> now;
  Limits limits;
};

/// Bytes [begin, end) of a rendered text.
struct ByteRange {
  std::size_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

struct Rendering {
  std::string text;
  /// What stands in {% generation %} blocks, in their order: the assistant's own tokens. Empty without has_generation().
  std::vector<ByteRange> generated;
};

/// A parsed template. Immutable: many threads may render one at a time; copies share it.
class Template {
 public:
  /// `name` stands in errors ("chat_template.jinja"). Throws Error "NAME:LINE: what was found, what was expected" for what Jinja2
  /// does not compile and for what is left out (see above).
  static Template parse(std::string_view source, std::string name);

  /// Renders with the members of `variables`, an object, as the template's variables. Nothing is added to them: transformers
  /// passes messages, tools, documents, add_generation_prompt (null where not given), the special tokens of the tokenizer
  /// (bos_token ...) and the caller's own. `variables` is not copied, and must stay unchanged until the call returns.
  /// Throws TemplateRefusal, or Error "NAME:LINE: ..." for what raises in Jinja2 and where a limit is passed.
  Rendering render(const Json& variables, const RenderOptions& options = {}) const;

  /// Whether the template marks the assistant's tokens by {% generation %} in a place where their position in the text is known:
  /// not in a macro, call, set or filter block or another generation block, of which transformers tells positions that are none.
  bool has_generation() const;

  /// Names of the variables that the template reads from `variables`, sorted: what else is given has no effect.
  const std::vector<std::string>& variables() const;

  const std::string& name() const;

 private:
  struct Impl;
  explicit Template(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace qft::jinja
