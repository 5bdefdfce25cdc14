// The values of a rendering: the Python types that templates use. Internal to the module.
#pragma once

#include "qft/core/python_json.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "big_integer.h"
#include "nodes.h"

namespace qft::jinja {

class Runtime;
struct Object;

enum class Kind : std::uint8_t {
  missing,    // an unset slot
  undefined,  // Jinja2's Undefined
  none,
  boolean,
  integer,
  real,
  text,
  json_list,  // the caller's variables, read in place
  json_dict,
  big,  // objects from here on
  list,
  tuple,
  dict,
  space,  // namespace()
  range,
  view,      // items(), keys() or values() of a dict
  iterator,  // a generator: read once
  function,  // a global, or a method bound to its value
  macro,
  loop,
  cycler,
  joiner,
};

/// Selects the error text when an undefined value is used.
enum class UndefinedReason : std::uint8_t { name, attribute, element, hint, unsafe };

/// 16 bytes. Objects are reference-counted. Texts are views (of the template or the variables) or objects.
class Value {
 public:
  Value() : kind_(Kind::missing) { u_.integer = 0; }
  Value(const Value& other) : kind_(other.kind_), flags_(other.flags_), extra_(other.extra_), size_(other.size_), u_(other.u_) {
    retain();
  }
  Value(Value&& other) noexcept
      : kind_(other.kind_), flags_(other.flags_), extra_(other.extra_), size_(other.size_), u_(other.u_) {
    other.kind_ = Kind::missing;
    other.flags_ = 0;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(flags_, other.flags_);
    std::swap(extra_, other.extra_);
    std::swap(size_, other.size_);
    std::swap(u_, other.u_);
    return *this;
  }
  ~Value() { release(); }

  static Value none() { return Value(Kind::none); }
  static Value boolean(bool value) { return integer_of(Kind::boolean, value ? 1 : 0); }
  static Value integer(std::int64_t value) { return integer_of(Kind::integer, value); }
  static Value size(std::size_t value) { return integer(static_cast<std::int64_t>(value)); }
  static Value real(double value) {
    Value result(Kind::real);
    result.u_.real = value;
    return result;
  }
  /// Creates a text from bytes that outlive the rendering.
  static Value view(std::string_view text) {
    Value result(Kind::text);
    result.u_.chars = text.data();
    result.size_ = static_cast<std::uint32_t>(text.size());
    return result;
  }
  static Value json(const Json& value, Runtime& rt);
  static Value undefined(UndefinedReason reason, std::string_view name, Kind of = Kind::missing) {
    Value result = view(name);
    result.kind_ = Kind::undefined;
    result.flags_ = static_cast<std::uint8_t>(static_cast<int>(reason) << 4);
    result.extra_ = static_cast<std::uint16_t>(of);
    return result;
  }
  /// Adds a reference to the object.
  explicit Value(Object* object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_text() const { return kind_ == Kind::text; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_list() const { return kind_ == Kind::list || kind_ == Kind::json_list; }
  bool is_dict() const { return kind_ == Kind::dict || kind_ == Kind::json_dict; }
  bool is_integer() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }  // 64-bit
  bool is_number() const { return is_integer() || kind_ == Kind::real || kind_ == Kind::big; }

  std::int64_t as_integer() const { return u_.integer; }
  double as_real() const { return u_.real; }
  const Json& as_json() const { return *u_.json; }
  std::string_view as_text() const;
  template <class T>
  T& as() const {
    return *static_cast<T*>(u_.object);
  }
  Object* object() const { return u_.object; }

  UndefinedReason reason() const { return static_cast<UndefinedReason>(flags_ >> 4); }
  std::string_view undefined_name() const { return {u_.chars, size_}; }
  Kind undefined_of() const { return static_cast<Kind>(extra_); }

  /// Python's Markup: a text marked as safe.
  bool is_markup() const { return kind_ == Kind::text && (flags_ & kMarkup) != 0; }
  Value as_markup(bool on = true) const {
    Value result = *this;
    result.flags_ = static_cast<std::uint8_t>(on ? flags_ | kMarkup : flags_ & ~kMarkup);
    return result;
  }
  /// Python's `is`.
  bool is_same(const Value& other) const {
    return kind_ == other.kind_ && u_.integer == other.u_.integer && (kind_ != Kind::text || size_ == other.size_);
  }

 private:
  static constexpr std::uint8_t kOwned = 1, kMarkup = 2;

  explicit Value(Kind kind) : kind_(kind) { u_.integer = 0; }
  static Value integer_of(Kind kind, std::int64_t value) {
    Value result(kind);
    result.u_.integer = value;
    return result;
  }
  bool holds_object() const { return kind_ >= Kind::big || (kind_ == Kind::text && (flags_ & kOwned) != 0); }
  void retain() const;
  void release() {
    if (holds_object()) drop();
  }
  void drop();

  Kind kind_;
  std::uint8_t flags_ = 0;
  std::uint16_t extra_ = 0;
  std::uint32_t size_ = 0;
  union {
    std::int64_t integer;
    double real;
    const char* chars;
    const Json* json;
    Object* object;
  } u_;
};

/// Base of all reference-counted values. A rendering keeps its objects in one list, so that it can delete cycles at its end.
struct Object {
  explicit Object(Kind object_kind) : kind(object_kind) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  /// Releases all values that the object holds.
  virtual void clear() {}

  std::uint32_t refs = 0;
  Kind kind;
  Runtime* rt = nullptr;
  std::size_t bytes = 0;  // memory counted for the object
  Object* previous = nullptr;
  Object* next = nullptr;
};

/// Deletes an object without references.
void end_object(Object* object);

inline void Value::retain() const {
  if (holds_object()) ++u_.object->refs;
}

struct TextObject final : Object {
  explicit TextObject(std::string value) : Object(Kind::text), text(std::move(value)) {}
  const std::string text;
};

inline Value::Value(Object* object) : kind_(object->kind) {
  u_.object = object;
  flags_ = kind_ == Kind::text ? kOwned : 0;
  ++object->refs;
}
inline std::string_view Value::as_text() const {
  return (flags_ & kOwned) != 0 ? std::string_view(static_cast<TextObject*>(u_.object)->text) : std::string_view(u_.chars, size_);
}

struct BigObject final : Object {
  explicit BigObject(BigInteger number) : Object(Kind::big), value(std::move(number)) {}
  const BigInteger value;
};

/// A list or a tuple. In groupby's tuples, the items have names.
struct ListObject final : Object {
  ListObject(Kind list_kind, std::vector<Value> values) : Object(list_kind), items(std::move(values)) {}
  void clear() override { items.clear(); }
  std::vector<Value> items;
  bool grouped = false;
};

/// Pairs in insertion order, found by the hash of their keys.
struct DictObject final : Object {
  DictObject() : Object(Kind::dict) {}
  void clear() override {
    pairs.clear();
    places.clear();
  }
  std::vector<std::pair<Value, Value>> pairs;
  std::unordered_multimap<std::size_t, std::uint32_t> places;  // only for large dicts
};

struct NamespaceObject final : Object {
  NamespaceObject() : Object(Kind::space) {}
  void clear() override { members = Value(); }
  Value members;  // a dict
};

struct RangeObject final : Object {
  RangeObject(std::int64_t begin, std::int64_t by, std::int64_t size, std::int64_t end)
      : Object(Kind::range), start(begin), step(by), count(size), stop(end) {}
  const std::int64_t start, step, count;
  const std::int64_t stop;  // as given, for str()
};

enum class ViewOf : std::uint8_t { keys, values, items };

struct ViewObject final : Object {
  ViewObject(ViewOf what, Value value) : Object(Kind::view), of(what), dict(std::move(value)) {}
  void clear() override { dict = Value(); }
  const ViewOf of;
  Value dict;
};

/// An iterator that can be read once.
struct IteratorObject : Object {
  IteratorObject() : Object(Kind::iterator) {}
  virtual bool next(Runtime& rt, Value& out) = 0;
};

/// The slots of a running function, or of one that a macro still refers to.
struct Scope final : Object {
  Scope(std::size_t count, Scope* outer);
  void clear() override;
  std::vector<Value> slots;
  Scope* parent;
};

/// A counted reference to a scope.
class ScopeRef {
 public:
  explicit ScopeRef(Scope* scope = nullptr) : scope_(scope) {
    if (scope_ != nullptr) ++scope_->refs;
  }
  ScopeRef(const ScopeRef& other) : ScopeRef(other.scope_) {}
  ScopeRef& operator=(const ScopeRef&) = delete;
  ~ScopeRef() { reset(); }
  void reset() {
    if (scope_ != nullptr && --scope_->refs == 0) end_object(scope_);
    scope_ = nullptr;
  }
  Scope* get() const { return scope_; }

 private:
  Scope* scope_;
};

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<Value, Value>> named;  // the names are texts
};

struct MethodRow {
  std::string_view name;
  Value (*run)(Runtime& rt, const Value& self, CallArgs& args);
};

struct FunctionObject final : Object {
  FunctionObject(const MethodRow& method, Value of) : Object(Kind::function), row(method), self(std::move(of)) {}
  void clear() override { self = Value(); }
  const MethodRow& row;
  Value self;  // missing: a global function
};

struct MacroObject final : Object {
  MacroObject(const Function& code, Scope* outer) : Object(Kind::macro), function(code), scope(outer) {}
  void clear() override { scope.reset(); }
  const Function& function;
  ScopeRef scope;
  bool is_call_block = false;
};

struct CyclerObject final : Object {
  explicit CyclerObject(std::vector<Value> values) : Object(Kind::cycler), items(std::move(values)) {}
  void clear() override { items.clear(); }
  std::vector<Value> items;
  std::size_t at = 0;
};

struct JoinerObject final : Object {
  explicit JoinerObject(Value text) : Object(Kind::joiner), separator(std::move(text)) {}
  void clear() override { separator = Value(); }
  Value separator;
  bool used = false;
};

}  // namespace qft::jinja
