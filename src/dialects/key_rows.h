// Rows of the tables of other tools' keys. Each kind of row has its own type, so that the compiler checks a table's columns.
#pragma once

#include <initializer_list>
#include <string_view>

namespace qft::dialects {

using Names = std::initializer_list<const char*>;  // GCC 12 has no constexpr lists of std::string_view

/// A value of another tool and qft's value for it; "null" unsets the key.
struct Word {
  const char* theirs;
  const char* ours;
};

/// What null does: it is the key's value, or the key counts as not given.
enum class Null : bool { is_a_value, sets_nothing };

/// Other names for a key of qft. Values without a word stay as they are.
struct Renamed {
  Names names;
  std::string_view key;
  std::initializer_list<Word> words = {};
  Null null = Null::is_a_value;
};

/// A setting that another tool's value means. The value "*" stands for what was given, without the beginning that a pattern
/// such as "pissa_niter_*" names.
struct Assignment {
  const char* key;
  const char* value;
  bool if_unset = false;  // apply only if nothing else sets the key
};
constexpr bool kIfUnset = true;

/// Values with the same meaning, and the settings that they mean. "*" at the end of a value matches any text.
struct Case {
  Names values;
  std::initializer_list<Assignment> sets;
};

/// Keys that set other keys depending on their value. Values without a case are refused with the text `otherwise`.
struct Converted {
  Names names;
  std::initializer_list<Case> cases;
  std::string_view otherwise;
};

/// A key with two meanings: the key `swift` in ms-swift, the key `other` in other tools if the run also gives `swift`. Empty: no
/// key of qft. `meanings` is the text of the error if nothing decides.
struct Either {
  std::string_view name;
  std::string_view swift;
  std::string_view other;
  std::string_view meanings;
};

/// Keys that have no effect in qft, and the reason. Values in `harmless` (the tool's default) leave no note.
struct NoEffect {
  Names names;
  std::string_view reason;
  Names harmless = {};
  Names values = {};                ///< the values without effect, others are refused; empty: all
  std::string_view otherwise = {};  ///< why they are refused
};

/// Keys with which qft would give another result than asked for: the reason and the remedy. Values in `harmless` change nothing.
struct Refused {
  Names names;
  std::string_view reason;
  Names harmless = {};
  Names methods = {};  ///< the values of finetuning_type or optim with which the keys matter; empty: always
};

}  // namespace qft::dialects
