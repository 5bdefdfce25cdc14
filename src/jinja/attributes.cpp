// Attributes, items, slices and calls, as in Jinja2's sandbox.
#include <algorithm>
#include <limits>

#include "methods.h"
#include "unicode.h"

namespace qft::jinja {
namespace {

Value dict_get(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "get()", args, {"key", "default"}, 1, true);
  std::optional<Value> value = dict_find(rt, self, *bound[0]);
  return value ? std::move(*value) : bound.value(1, Value::none());
}

template <ViewOf of>
Value dict_view(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "items(), keys() or values()", args, {});
  return Value(rt.make<ViewObject>(0, of, self));
}

Value dict_copy(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "copy()", args, {});
  auto* dict = rt.make<DictObject>(0);
  Value result(dict);
  for (std::size_t i = 0; i < dict_size(self); ++i) {
    auto [key, value] = dict_at(rt, self, i);
    dict_set(rt, *dict, std::move(key), std::move(value));
  }
  return result;
}

Value dict_fromkeys(Runtime& rt, const Value&, CallArgs& args) {
  const Bound bound(rt, "fromkeys()", args, {"iterable", "value"}, 1, true);
  auto* dict = rt.make<DictObject>(0);
  Value result(dict);
  for (Value& key : to_items(rt, *bound[0])) dict_set(rt, *dict, std::move(key), bound.value(1, Value::none()));
  return result;
}

Value list_copy(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "copy()", args, {});
  return rt.list(to_items(rt, self));
}

Value sequence_count(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "count()", args, {"value"}, 1, true);
  std::int64_t found = 0;
  Cursor cursor(rt, self);
  for (Value item; cursor.next(rt, item);)
    if (item.is_same(*bound[0]) || equal(rt, item, *bound[0])) ++found;
  return Value::integer(found);
}

Value sequence_index(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "index()", args, {"value", "start", "stop"}, 1, true);
  const auto size = static_cast<std::int64_t>(*length(rt, self));
  const auto place = [&](std::size_t i, std::int64_t fallback) {
    const std::int64_t at = bound.integer(i, fallback);
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
  };
  const std::int64_t begin = place(1, 0), end = place(2, size);
  Cursor cursor(rt, self);
  std::int64_t at = 0;
  for (Value item; cursor.next(rt, item); ++at)
    if (at >= begin && at < end && (item.is_same(*bound[0]) || equal(rt, item, *bound[0]))) return Value::integer(at);
  rt.fail("index(): the value is not in the list");
}

Value loop_cycle(Runtime& rt, const Value& self, CallArgs& args) {
  if (args.positional.empty() || !args.named.empty()) rt.fail("cycle() needs one value or more");
  return args.positional[static_cast<std::size_t>(self.as<LoopObject>().index0) % args.positional.size()];
}

Value loop_changed(Runtime& rt, const Value& self, CallArgs& args) {
  auto& loop = self.as<LoopObject>();
  const Value now = rt.tuple(args.positional);
  if (!loop.changed.is(Kind::missing) && equal(rt, loop.changed, now)) return Value::boolean(false);
  loop.changed = now;
  return Value::boolean(true);
}

Value cycler_next(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "next()", args, {});
  auto& cycler = self.as<CyclerObject>();
  Value value = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return value;
}

Value cycler_reset(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "reset()", args, {});
  self.as<CyclerObject>().at = 0;
  return Value::none();
}

Value conjugate(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "conjugate()", args, {});
  return negative(rt, self, false);
}

Value is_whole(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "is_integer()", args, {});
  const double value = self.as_real();
  return Value::boolean(value - value == 0 && value == static_cast<double>(static_cast<std::int64_t>(value)));
}

Value bit_length(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "bit_length()", args, {});
  std::int64_t bits = 0;
  auto rest = static_cast<std::uint64_t>(self.as_integer());
  if (self.as_integer() < 0) rest = ~rest + 1;
  for (; rest > 0; rest >>= 1) ++bits;
  return Value::integer(bits);
}

Value left_out(Runtime& rt, const Value& self, CallArgs&) {
  rt.fail("this method of {} is not implemented", object_name(self));
}

constexpr MethodRow kDictMethods[] = {
    {"copy", dict_copy},
    {"fromkeys", dict_fromkeys},
    {"get", dict_get},
    {"items", dict_view<ViewOf::items>},
    {"keys", dict_view<ViewOf::keys>},
    {"values", dict_view<ViewOf::values>},
};
constexpr std::string_view kDictRefused[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr MethodRow kListMethods[] = {{"copy", list_copy}, {"count", sequence_count}, {"index", sequence_index}};
constexpr std::string_view kListRefused[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr MethodRow kTupleMethods[] = {{"count", sequence_count}, {"index", sequence_index}};
constexpr MethodRow kViewMethods[] = {{"isdisjoint", left_out}};
constexpr MethodRow kLoopMethods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};
constexpr MethodRow kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};
constexpr MethodRow kIntegerMethods[] = {{"as_integer_ratio", left_out}, {"bit_count", left_out},  {"bit_length", bit_length},
                                         {"conjugate", conjugate},       {"from_bytes", left_out}, {"to_bytes", left_out}};
constexpr MethodRow kRealMethods[] = {
    {"as_integer_ratio", left_out}, {"conjugate", conjugate}, {"fromhex", left_out}, {"hex", left_out}, {"is_integer", is_whole}};
// attributes of every Python object
constexpr std::string_view kObjectAttributes[] = {
    "__class__", "__delattr__",      "__dir__",     "__doc__",    "__eq__",          "__format__",
    "__ge__",    "__getattribute__", "__gt__",      "__hash__",   "__init__",        "__init_subclass__",
    "__le__",    "__lt__",           "__ne__",      "__new__",    "__reduce__",      "__repr__",
    "__str__",   "__reduce_ex__",    "__setattr__", "__sizeof__", "__subclasshook__"};

template <std::size_t count>
bool is_one_of(const std::string_view (&names)[count], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::optional<Value> loop_attribute(Runtime& rt, LoopObject& loop, std::string_view name) {
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(loop.peek(rt) == nullptr);
  if (name == "length") return Value::size(loop.length(rt));
  if (name == "revindex") return Value::integer(static_cast<std::int64_t>(loop.length(rt)) - loop.index0);
  if (name == "revindex0") return Value::integer(static_cast<std::int64_t>(loop.length(rt)) - loop.index0 - 1);
  if (name == "depth") return Value::size(loop.depth0 + 1);
  if (name == "depth0") return Value::size(loop.depth0);
  if (name == "previtem")
    return loop.index0 == 0 ? Value::undefined(UndefinedReason::hint, "there is no previous item") : loop.before;
  if (name == "nextitem") {
    const Value* next = loop.peek(rt);
    return next == nullptr ? Value::undefined(UndefinedReason::hint, "there is no next item") : *next;
  }
  return std::nullopt;
}

std::optional<Value> macro_attribute(Runtime& rt, const MacroObject& macro, std::string_view name) {
  const Function& function = macro.function;
  if (name == "name") return macro.is_call_block ? Value::none() : Value::view(function.name);
  if (name == "catch_kwargs") return Value::boolean(function.takes_kwargs);
  if (name == "catch_varargs") return Value::boolean(function.takes_varargs);
  if (name == "caller") return Value::boolean(function.takes_caller);
  std::vector<Value> params;
  bool has_caller = false;
  for (const Expr* param : function.params) {
    params.push_back(Value::view(param->text));
    has_caller = has_caller || param->text == "caller";
  }
  if (name == "explicit_caller") return Value::boolean(has_caller);
  if (name == "arguments") return rt.tuple(std::move(params));
  return std::nullopt;
}

// Returns an attribute that is not a method.
std::optional<Value> plain_attribute(Runtime& rt, const Value& of, std::string_view name) {
  switch (of.kind()) {
    case Kind::space:
      return dict_find(rt, of.as<NamespaceObject>().members, name);
    case Kind::loop:
      return loop_attribute(rt, of.as<LoopObject>(), name);
    case Kind::macro:
      return macro_attribute(rt, of.as<MacroObject>(), name);
    case Kind::cycler: {
      const auto& cycler = of.as<CyclerObject>();
      if (name == "current") return cycler.items[cycler.at];
      if (name == "pos") return Value::size(cycler.at);
      if (name == "items") return rt.tuple(cycler.items);
      return std::nullopt;
    }
    case Kind::tuple: {
      const auto& tuple = of.as<ListObject>();
      if (tuple.grouped && (name == "grouper" || name == "list")) return tuple.items[name == "list" ? 1 : 0];
      return std::nullopt;
    }
    case Kind::range: {
      const auto& range = of.as<RangeObject>();
      if (name == "start") return Value::integer(range.start);
      if (name == "step") return Value::integer(range.step);
      if (name == "stop") return Value::integer(range.stop);
      return std::nullopt;
    }
    case Kind::boolean:
    case Kind::integer:
    case Kind::big:
      if (name == "real" || name == "numerator") return negative(rt, of, false);
      if (name == "imag") return Value::integer(0);
      if (name == "denominator") return Value::integer(1);
      return std::nullopt;
    case Kind::real:
      if (name == "real") return of;
      if (name == "imag") return Value::real(0);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// Whether Python has the attribute but the sandbox refuses it.
bool is_refused(const Value& of, std::string_view name) {
  if (name.starts_with("__") && is_one_of(kObjectAttributes, name)) return true;
  if (of.is_dict()) return is_one_of(kDictRefused, name);
  if (of.is_list()) return is_one_of(kListRefused, name);
  return false;
}

// Returns a value's attribute like Python's getattr().
std::optional<Value> python_attribute(Runtime& rt, const Value& of, std::string_view name) {
  if (is_refused(of, name)) return rt.undefined(UndefinedReason::unsafe, name, of.kind());
  if (std::optional<Value> value = plain_attribute(rt, of, name)) return value;
  if (const MethodRow* method = find_method(of, name)) return Value(rt.make<FunctionObject>(0, *method, of));
  return std::nullopt;
}

std::int64_t index_of(Runtime& rt, const Value& value) {
  if (value.is(Kind::big))
    return value.as<BigObject>().value.is_negative() ? std::numeric_limits<std::int64_t>::min() / 4
                                                     : std::numeric_limits<std::int64_t>::max() / 4;
  if (!value.is_integer()) {
    refuse_undefined(rt, value);
    rt.fail("a slice needs integers, not {}", object_name(value));
  }
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 4;
  return std::clamp(value.as_integer(), -kFar, kFar);
}

std::optional<Value> item_at(Runtime& rt, const Value& of, std::int64_t index) {
  if (of.is_text()) {
    const std::string_view text = of.as_text();
    rt.work(text.size());
    const auto size = static_cast<std::int64_t>(char_count(text));
    if (index < 0) index += size;
    if (index < 0 || index >= size) return std::nullopt;
    const auto at = static_cast<std::size_t>(index);
    return rt.text(std::string(char_slice(text, at, at + 1))).as_markup(of.is_markup());
  }
  const auto size = static_cast<std::int64_t>(*length(rt, of));
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  if (of.is(Kind::range)) return Value::integer(of.as<RangeObject>().start + of.as<RangeObject>().step * index);
  return list_at(rt, of, static_cast<std::size_t>(index));
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::big:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::json_list:
    case Kind::list:
      return "list";
    case Kind::json_dict:
    case Kind::dict:
      return "dict";
    case Kind::tuple:
      return "tuple";
    case Kind::space:
      return "namespace";
    case Kind::range:
      return "range";
    case Kind::view:
      return "dict view";
    case Kind::iterator:
      return "generator";
    case Kind::function:
      return "function";
    case Kind::macro:
      return "macro";
    case Kind::loop:
      return "loop";
    case Kind::cycler:
      return "cycler";
    case Kind::joiner:
      return "joiner";
  }
  return "value";
}

std::string object_name(const Value& value) {
  return value.is(Kind::none)   ? std::string("None")
         : value.is_undefined() ? std::string("an undefined value")
                                : fmt::format("{} object", type_name(value));
}

void fail_undefined(const Runtime& rt, const Value& value) {
  const std::string_view name = value.undefined_name();
  const auto of = [&] {
    switch (value.undefined_of()) {
      case Kind::json_dict:
      case Kind::dict:
        return "dict object";
      case Kind::json_list:
      case Kind::list:
        return "list object";
      case Kind::text:
        return "str object";
      case Kind::none:
        return "None";
      case Kind::space:
        return "namespace";
      case Kind::undefined:
        return "undefined value";
      default:
        return "value";
    }
  };
  switch (value.reason()) {
    case UndefinedReason::name:
      rt.fail("'{}' is undefined", name);
    case UndefinedReason::attribute:
      rt.fail("'{}' has no attribute '{}'", of(), name);
    case UndefinedReason::element:
      rt.fail("{} has no element {}", of(), name);
    case UndefinedReason::unsafe:
      rt.fail("templates may not use the attribute '{}' of '{}' (they cannot change values)", name, of());
    default:
      rt.fail("{}", name);
  }
}

void refuse_undefined(const Runtime& rt, const Value& value) {
  if (value.is_undefined()) fail_undefined(rt, value);
}

const MethodRow* find_method(const Value& of, std::string_view name) {
  switch (of.kind()) {
    case Kind::text:
      return find_text_method(name);
    case Kind::json_dict:
    case Kind::dict:
      return find_row(kDictMethods, name);
    case Kind::json_list:
    case Kind::list:
      return find_row(kListMethods, name);
    case Kind::tuple:
    case Kind::range:
      return of.is(Kind::tuple) && of.as<ListObject>().grouped && name == "count" ? nullptr : find_row(kTupleMethods, name);
    case Kind::view:
      return of.as<ViewObject>().of == ViewOf::values ? nullptr : find_row(kViewMethods, name);
    case Kind::loop:
      return find_row(kLoopMethods, name);
    case Kind::cycler:
      return find_row(kCyclerMethods, name);
    case Kind::boolean:
    case Kind::integer:
    case Kind::big:
      return find_row(kIntegerMethods, name);
    case Kind::real:
      return find_row(kRealMethods, name);
    case Kind::function:  // the global dict
      return of.as<FunctionObject>().row.name == "dict" && name == "fromkeys" ? find_row(kDictMethods, name) : nullptr;
    default:
      return nullptr;
  }
}

Value get_attribute(Runtime& rt, const Value& of, std::string_view name) {
  if (of.is_undefined() && !is_one_of(kObjectAttributes, name)) fail_undefined(rt, of);
  if (of.is(Kind::json_dict)) {  // usually a member, and no method has its name
    if (find_method(of, name) == nullptr && !is_refused(of, name)) {
      std::optional<Value> value = dict_find(rt, of, name);
      return value ? std::move(*value) : Value::undefined(UndefinedReason::attribute, name, of.kind());
    }
  }
  if (std::optional<Value> value = python_attribute(rt, of, name)) return std::move(*value);
  if (of.is_dict())
    if (std::optional<Value> value = dict_find(rt, of, name)) return std::move(*value);
  return rt.undefined(UndefinedReason::attribute, name, of.kind());
}

Value get_item(Runtime& rt, const Value& of, const Value& key) {
  rt.step();
  refuse_undefined(rt, of);
  if (of.is_dict()) {
    const bool can_be_key = !key.is_list() && !key.is_dict();
    if (can_be_key)
      if (std::optional<Value> value = dict_find(rt, of, key)) return std::move(*value);
  } else if ((of.is_text() || is_sequence(of) || of.is(Kind::range)) && key.is_integer()) {
    if (std::optional<Value> value = item_at(rt, of, key.as_integer())) return std::move(*value);
  }
  if (key.is_text()) {
    if (std::optional<Value> value = python_attribute(rt, of, key.as_text())) return std::move(*value);
    return rt.undefined(UndefinedReason::attribute, key.as_text(), of.kind());
  }
  if (!key.is_number() && !key.is(Kind::none)) return rt.undefined(UndefinedReason::element, object_name(key), of.kind());
  std::string name;
  append_repr(rt, key, name);
  return rt.undefined(UndefinedReason::element, name, of.kind());
}

Value get_slice(Runtime& rt, const Value& of, const Value& begin, const Value& end, const Value& step) {
  refuse_undefined(rt, of);
  if (!of.is_text() && !is_sequence(of) && !of.is(Kind::range)) rt.fail("{} cannot be sliced", object_name(of));
  const std::int64_t by = step.is(Kind::none) ? 1 : index_of(rt, step);
  if (by == 0) rt.fail("a slice with a step of 0");
  const auto size = static_cast<std::int64_t>(*length(rt, of));
  const auto place = [&](const Value& value, std::int64_t fallback) {
    if (value.is(Kind::none)) return fallback;
    std::int64_t at = index_of(rt, value);
    if (at < 0) at += size;
    return by > 0 ? std::clamp<std::int64_t>(at, 0, size) : std::clamp<std::int64_t>(at, -1, size - 1);
  };
  const std::int64_t from = place(begin, by > 0 ? 0 : size - 1), to = place(end, by > 0 ? size : -1);
  const std::int64_t count = by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0) : (from > to ? (from - to - 1) / -by + 1 : 0);
  if (of.is(Kind::range)) {
    const auto& range = of.as<RangeObject>();
    return Value(rt.make<RangeObject>(0, range.start + range.step * from, range.step * by, count, range.start + range.step * to));
  }
  if (of.is_text()) {
    const std::string_view text = of.as_text();
    rt.work(text.size());
    if (by == 1)
      return rt.text(std::string(char_slice(text, static_cast<std::size_t>(from), static_cast<std::size_t>(std::max(from, to)))))
          .as_markup(of.is_markup());
    const std::u32string chars = to_chars(text);
    std::u32string taken;
    for (std::int64_t i = 0, at = from; i < count; ++i, at += by) taken += chars[static_cast<std::size_t>(at)];
    return rt.text(to_text(taken)).as_markup(of.is_markup());
  }
  std::vector<Value> items;
  rt.check_memory(static_cast<std::size_t>(count) * sizeof(Value));
  items.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0, at = from; i < count; ++i, at += by) items.push_back(list_at(rt, of, static_cast<std::size_t>(at)));
  return rt.sequence(of.is(Kind::tuple) ? Kind::tuple : Kind::list, std::move(items));
}

Value call(Runtime& rt, const Value& callee, CallArgs& args) {
  rt.step();
  refuse_undefined(rt, callee);
  switch (callee.kind()) {
    case Kind::function: {
      const Value held = callee;
      auto& function = held.as<FunctionObject>();
      return function.row.run(rt, function.self, args);
    }
    case Kind::macro: {
      const Value held = callee;
      return call_macro(rt, held.as<MacroObject>(), args);
    }
    case Kind::loop: {
      const Bound bound(rt, "loop()", args, {"iterable"}, 1);
      const Value held = callee;
      return call_loop(rt, held.as<LoopObject>(), *bound[0]);
    }
    case Kind::joiner: {
      const Bound bound(rt, "a joiner", args, {});
      auto& joiner = callee.as<JoinerObject>();
      return std::exchange(joiner.used, true) ? joiner.separator : Value::view({});
    }
    default:
      rt.fail("{} cannot be called", object_name(callee));
  }
}

}  // namespace qft::jinja
