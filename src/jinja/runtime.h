// State of one rendering (values, limits, output) and Python's operations on values. Internal to the module.
#pragma once

#include "qft/core/error.h"
#include "qft/jinja/template.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nodes.h"
#include "value.h"

namespace qft::jinja {

struct FilterRow {
  std::string_view name;
  Value (*run)(Runtime& rt, const Value& self, CallArgs& args);
};
struct TestRow {
  std::string_view name;
  bool (*run)(Runtime& rt, const Value& self, CallArgs& args);
};

class Runtime {
 public:
  Runtime(const Tree& tree, const std::string& name, const RenderOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw Error(where() + fmt::format(text, std::forward<Args>(args)...));
  }
  /// "NAME:LINE: ".
  std::string where() const;

  /// Counts work; exceeding the limit is an error.
  void step(std::uint64_t count = 1) {
    if ((steps_ += count) > options_.limits.steps) fail_steps();
  }
  void work(std::size_t bytes) { step(1 + bytes / 64); }
  /// Counts memory before it is allocated.
  void charge(Object& object, std::size_t bytes);
  void check_memory(std::size_t bytes) const;
  void check_output(std::size_t bytes) const;

  template <class T, class... Args>
  T* make(std::size_t extra, Args&&... args) {
    check_memory(sizeof(T) + extra);
    T* object = new T(std::forward<Args>(args)...);
    add(*object, sizeof(T) + extra);
    return object;
  }
  Value text(std::string value);
  Value list(std::vector<Value> items) { return sequence(Kind::list, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::tuple, std::move(items)); }
  Value sequence(Kind kind, std::vector<Value> items);
  Value big(BigInteger value);  ///< an ordinary 64-bit integer if it fits
  /// Creates an undefined value with a name that the rendering must keep alive.
  Value undefined(UndefinedReason reason, std::string_view name, Kind of);

  const RenderOptions& options() const { return options_; }
  const Tree& tree() const { return tree_; }

  int line = 0;           ///< of the running code
  std::size_t depth = 0;  ///< of nested calls and values
  std::string out;        ///< the text so far
  std::vector<ByteRange> generated;
  std::vector<Value> variables;  ///< by index in the tree's table

 private:
  friend void end_object(Object* object);
  void add(Object& object, std::size_t bytes);
  void remove(Object& object);
  [[noreturn]] void fail_steps() const;

  const Tree& tree_;
  const std::string& name_;
  const RenderOptions& options_;
  std::uint64_t steps_ = 0;
  std::size_t memory_ = 0;
  Object* first_ = nullptr;
  bool ending_ = false;           // all objects are about to be deleted
  std::vector<Object*> pending_;  // objects to delete after the current one, so that a long chain does not recurse
  bool busy_ = false;
  std::vector<std::unique_ptr<std::string>> names_;
  std::size_t names_bytes_ = 0;
};

/// Counts one level of depth; too many are an error.
class Nested {
 public:
  explicit Nested(Runtime& rt) : rt_(rt) {
    if (rt_.depth >= rt_.options().limits.depth) rt_.fail("more than {} nested calls and values (the limit on depth)", rt_.depth);
    ++rt_.depth;
  }
  ~Nested() { --rt_.depth; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Runtime& rt_;
};

/// Iterates over any iterable value.
class Cursor {
 public:
  /// Fails if `source` cannot be iterated.
  Cursor(Runtime& rt, Value source);
  bool next(Runtime& rt, Value& out);
  /// Number of remaining items, if known without reading them.
  std::optional<std::size_t> remaining(Runtime& rt) const;
  const Value& source() const { return source_; }

 private:
  Value source_;
  std::size_t at_ = 0;
};

/// The variable `loop` of a running loop.
struct LoopObject final : Object {
  LoopObject(Runtime& rt, Value source, const Stmt* recursive, Scope* outer, std::size_t level)
      : Object(Kind::loop), cursor(rt, std::move(source)), body(recursive), scope(outer), depth0(level) {}
  void clear() override;
  bool next(Runtime& rt, Value& out);
  const Value* peek(Runtime& rt);  // null: no next item
  std::size_t length(Runtime& rt);

  Cursor cursor;
  const Stmt* body;  // for a recursive loop
  ScopeRef scope;    // the scope around the loop
  std::size_t depth0;
  std::int64_t index0 = -1;
  std::optional<std::size_t> counted;
  Value after, current, before, changed;  // missing: none
};

// ---- Python's operations. Each fails if Python raises.

std::string_view type_name(const Value& value);  ///< "dict"
std::string object_name(const Value& value);     ///< "dict object"
[[noreturn]] void fail_undefined(const Runtime& rt, const Value& value);
void refuse_undefined(const Runtime& rt, const Value& value);

bool truth(Runtime& rt, const Value& value);
bool equal(Runtime& rt, const Value& a, const Value& b);
/// Evaluates a OP b for < <= > >=.
bool ordered(Runtime& rt, const Value& a, CompareOp op, const Value& b);
bool contains(Runtime& rt, const Value& in, const Value& item);
std::size_t hash(Runtime& rt, const Value& value);
Value binary(Runtime& rt, ExprKind op, const Value& a, const Value& b);
Value negative(Runtime& rt, const Value& value, bool negate);
std::optional<std::size_t> length(Runtime& rt, const Value& value);  ///< nothing: the value has no len()

void append_text(Runtime& rt, const Value& value, std::string& out);  ///< str(value)
void append_repr(Runtime& rt, const Value& value, std::string& out);
void append_quoted(std::string_view text, std::string& out);  ///< repr() of a text
std::string python_repr(double value);
Value to_text(Runtime& rt, const Value& value);  ///< str(value); returns a text unchanged

Value get_attribute(Runtime& rt, const Value& of, std::string_view name);
Value get_item(Runtime& rt, const Value& of, const Value& key);
Value get_slice(Runtime& rt, const Value& of, const Value& begin, const Value& end, const Value& step);
/// Finds a value's method; null if there is none.
const MethodRow* find_method(const Value& of, std::string_view name);
const MethodRow* find_global(std::string_view name);
Value call(Runtime& rt, const Value& callee, CallArgs& args);
Value call_macro(Runtime& rt, MacroObject& macro, CallArgs& args);
Value call_loop(Runtime& rt, LoopObject& loop, const Value& items);
void run_template(Runtime& rt);

// ---- Dicts of both kinds.

void dict_set(Runtime& rt, DictObject& dict, Value key, Value value);
/// Returns the value of a key; nothing if the key is missing.
std::optional<Value> dict_find(Runtime& rt, const Value& dict, const Value& key);
std::optional<Value> dict_find(Runtime& rt, const Value& dict, std::string_view key);
std::size_t dict_size(const Value& dict);
/// Returns the pair at an index.
std::pair<Value, Value> dict_at(Runtime& rt, const Value& dict, std::size_t index);
Value make_dict(Runtime& rt, CallArgs& args);

// ---- Lists and tuples of all kinds.

std::size_t list_size(const Value& list);
Value list_at(Runtime& rt, const Value& list, std::size_t index);
std::vector<Value> to_items(Runtime& rt, const Value& value);  ///< list(value)
bool is_sequence(const Value& value);                          ///< a list or a tuple

/// Sorts stably by keys[i] of items[i].
std::vector<Value> sort_by(Runtime& rt, std::vector<Value> items, std::vector<Value> keys, bool reverse);

// ---- Formatting.

Value format_percent(Runtime& rt, const Value& form, const Value& args);
Value format_braces(Runtime& rt, std::string_view form, CallArgs& args);
std::string format_value(Runtime& rt, const Value& value, std::string_view spec);
std::string dump_value(Runtime& rt, const Value& value, bool ascii, const Value& indent, const Value& separators, bool sort_keys);
std::string escape_html(std::string_view text);

/// Arguments bound to parameter names; null if not given.
class Bound {
 public:
  Bound(Runtime& rt, std::string_view function, CallArgs& args, std::initializer_list<std::string_view> names,
        std::size_t required = 0, bool by_position = false);
  const Value* operator[](std::size_t i) const { return values_[i]; }
  bool has(std::size_t i) const { return values_[i] != nullptr && !values_[i]->is(Kind::none); }
  Value value(std::size_t i, Value fallback) const { return values_[i] != nullptr ? *values_[i] : std::move(fallback); }
  bool flag(std::size_t i, bool fallback = false) const;
  std::int64_t integer(std::size_t i, std::int64_t fallback) const;
  std::string_view text(std::size_t i) const;

 private:
  Runtime& rt_;
  std::string_view function_;
  std::vector<const Value*> values_;
};

}  // namespace qft::jinja
