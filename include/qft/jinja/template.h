// Chat templates: Jinja2 as transformers runs it for apply_chat_template (its immutable sandbox, trim_blocks, lstrip_blocks,
// loop controls, {% generation %}, its own tojson). Renders the same text for the same variables, and throws if Jinja2 raises.
//
// Template::parse rejects these with the line: block, extends, include, import, from (no other template exists),
// autoescape, the filters random and urlize, the global lipsum. Printing a generator or a method is an error, because Jinja2
// would print its machine address.
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

/// The template called raise_exception(message): it refuses these variables (a conversation that its model never saw). what()
/// names the template and line; message() is the template's own text, to which the caller adds the record.
class TemplateRefusal : public Error {
 public:
  TemplateRefusal(const std::string& what, std::string message) : Error(what), message_(std::move(message)) {}
  const std::string& message() const noexcept { return message_; }

 private:
  std::string message_;
};

/// Limits of one rendering; exceeding one throws an Error that names it. Templates are untrusted programs.
struct Limits {
  std::uint64_t steps = 50'000'000;                 ///< expressions, statements, items and 64-byte text pieces processed
  std::size_t depth = 1000;                         ///< nested expressions, statements and calls
  std::size_t output_bytes = std::size_t{1} << 28;  ///< of the whole text
  std::size_t memory_bytes = std::size_t{1} << 30;  ///< of all values alive at one time
};

struct RenderOptions {
  /// The result of strftime_now(); unset: this machine's local time. Set it if renderings must be reproducible.
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
  /// The contents of {% generation %} blocks, in order: the assistant's tokens. Empty unless has_generation().
  std::vector<ByteRange> generated;
};

/// A parsed template. Immutable: many threads may render one concurrently; copies share it.
class Template {
 public:
  /// `name` appears in errors ("chat_template.jinja"). Throws Error "NAME:LINE: found ..., expected ..." if Jinja2
  /// cannot compile the source or if it uses an unsupported feature (see above).
  static Template parse(std::string_view source, std::string name);

  /// Renders with the members of the object `variables` as the template's variables. Adds no others: transformers passes
  /// messages, tools, documents, add_generation_prompt (null if not given), the tokenizer's special tokens (bos_token ...) and
  /// the caller's own. `variables` is not copied and must stay unchanged until the call returns. Throws TemplateRefusal, or
  /// Error "NAME:LINE: ..." if Jinja2 would raise or a limit is exceeded.
  Rendering render(const Json& variables, const RenderOptions& options = {}) const;

  /// Whether the template marks the assistant's tokens with {% generation %} at a place with a known position in the text: not
  /// in a macro, call, set or filter block or another generation block, for which transformers reports wrong positions.
  bool has_generation() const;

  /// Names of the variables that the template reads from `variables`, sorted. Other variables have no effect.
  const std::vector<std::string>& variables() const;

  const std::string& name() const;

 private:
  struct Impl;
  explicit Template(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace qft::jinja
