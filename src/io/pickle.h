// Reads a pickle into inert values: nothing is imported, called or built. Private to io. Supports protocols 2 to 5, and only the
// opcodes that files of tensors need; any other is rejected by name. Format: pickletools.py of CPython.
#pragma once

#include "qft/core/error.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qft::io {

/// A value, by its index in the pickle's list of values: values may be shared, or contain themselves.
using PickleRef = std::uint32_t;

struct PickleValue {
  enum class Kind : std::uint8_t { none, boolean, integer, real, text, tuple, list, dict, global, call, persistent };
  Kind kind = Kind::none;
  std::int64_t integer = 0;  // boolean, integer
  std::string text;          // text; global: "module.name"
  /// tuple, list: its items; dict: key, value, key, value ...; call: the callee and its arguments (a tuple);
  /// persistent: the id.
  std::vector<PickleRef> items;
};

struct Pickle {
  std::vector<PickleValue> values;
  PickleRef root = 0;
  const PickleValue& operator[](PickleRef ref) const { return values[ref]; }
};

/// Thrown for a pickle that is sound, as far as it was read, but asks for more than data.
class ForeignPickle : public Error {
 public:
  using Error::Error;
};

/// Reads a pickle. It may name only the functions and classes in `globals` and collections.OrderedDict, which becomes a dict
/// without its attributes. Memory and time are linear in the text. Throws ForeignPickle with the rejected name, or Error; neither
/// message names the file.
Pickle read_pickle(std::string_view text, std::span<const std::string_view> globals);

}  // namespace qft::io
