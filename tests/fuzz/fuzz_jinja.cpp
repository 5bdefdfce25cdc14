// Chat templates: any bytes give an Error, or a template that renders within its limits, twice with the same text.
#include "qft/core/error.h"
#include "qft/jinja/template.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

const qft::Json& variables() {
  static const qft::Json value = qft::parse_python_json(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "qé"}, {"role": "assistant", "content": null,
          "reasoning_content": "t", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": [1, 2.5, {"b": null}]}}}]},
          {"role": "tool", "content": "r"}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}],
          "add_generation_prompt": true, "bos_token": "<s>", "n": 123456789012345678901234567890, "x": NaN})",
      "variables");
  return value;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto parsed = qft::jinja::Template::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    qft::jinja::RenderOptions options;
    options.now.emplace();
    options.limits.steps = 200'000;
    options.limits.memory_bytes = std::size_t{16} << 20;
    options.limits.output_bytes = std::size_t{4} << 20;
    const qft::jinja::Rendering first = parsed.render(variables(), options);
    for (const qft::jinja::ByteRange& range : first.generated)
      if (range.begin > range.end || range.end > first.text.size()) std::abort();
    if (parsed.render(variables(), options).text != first.text) std::abort();
  } catch (const qft::Error&) {
    // Refused.
  }
  return 0;
}
