// The global functions, and the binding of arguments to parameters.
#include <algorithm>
#include <ctime>

#include "methods.h"

namespace qft::jinja {
namespace {

Value raise_exception(Runtime& rt, const Value&, CallArgs& args) {
  const Bound bound(rt, "raise_exception()", args, {"message"}, 1);
  std::string message;
  append_text(rt, *bound[0], message);
  throw TemplateRefusal(rt.where() + "the template refuses: " + message, message);
}

Value range(Runtime& rt, const Value&, CallArgs& args) {
  constexpr std::int64_t kMaxRange = 100'000;  // Jinja2's limit
  const Bound bound(rt, "range()", args, {"start", "stop", "step"}, 1, true);
  for (std::size_t i = 0; i < 3; ++i)
    if (bound[i] != nullptr && !bound[i]->is_integer()) {
      refuse_undefined(rt, *bound[i]);
      rt.fail("range() needs integers of 64 bits, not {}", object_name(*bound[i]));
    }
  const bool one = bound[1] == nullptr;
  const std::int64_t start = one ? 0 : bound.integer(0, 0), stop = one ? bound.integer(0, 0) : bound.integer(1, 0);
  const std::int64_t step = bound.integer(2, 1);
  if (step == 0) rt.fail("range() with a step of 0");
  const auto gap = static_cast<std::uint64_t>(step > 0 ? stop : start) - static_cast<std::uint64_t>(step > 0 ? start : stop);
  const std::uint64_t by = step > 0 ? static_cast<std::uint64_t>(step) : ~static_cast<std::uint64_t>(step) + 1;
  const bool empty = step > 0 ? stop <= start : start <= stop;
  const std::uint64_t count = empty ? 0 : (gap - 1) / by + 1;
  if (count > kMaxRange) rt.fail("range() of {} items; the limit is {}", count, kMaxRange);
  return Value(rt.make<RangeObject>(0, start, step, static_cast<std::int64_t>(count), stop));
}

Value dict(Runtime& rt, const Value&, CallArgs& args) {
  return make_dict(rt, args);
}

Value space(Runtime& rt, const Value&, CallArgs& args) {
  auto* object = rt.make<NamespaceObject>(0);
  Value result(object);
  object->members = make_dict(rt, args);
  for (const auto& [key, value] : object->members.as<DictObject>().pairs)
    if (key.is_text() && key.as_text().starts_with('_'))
      rt.fail("the attribute '{}' of a namespace begins with an underscore", key.as_text());
  return result;
}

Value strftime_now(Runtime& rt, const Value&, CallArgs& args) {
  const Bound bound(rt, "strftime_now()", args, {"format"}, 1);
  if (!bound[0]->is_text()) rt.fail("strftime_now() needs a text, not {}", object_name(*bound[0]));
  std::tm now{};
  if (rt.options().now) {
    now = *rt.options().now;
  } else {
    const std::time_t clock = std::time(nullptr);
    localtime_r(&clock, &now);
  }
  // Python's %f (microseconds) is unknown to C; the time has none.
  std::string form;
  const std::string_view given = bound[0]->as_text();
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] == '\0') rt.fail("strftime_now(): a zero byte in the format");
    if (given[i] == '%' && i + 1 < given.size() && given[i + 1] == 'f') {
      form += "000000";
      ++i;
    } else {
      form += given[i];
      if (given[i] == '%' && i + 1 < given.size()) form += given[++i];
    }
  }
  constexpr std::size_t kMaxForm = 1000;
  if (form.size() > kMaxForm) rt.fail("strftime_now(): a format of {} bytes; the limit is {}", form.size(), kMaxForm);
  if (form.empty()) return Value::view({});
  std::string text(form.size() * 64 + 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), form.c_str(), &now));
  return rt.text(std::move(text));
}

Value cycler(Runtime& rt, const Value&, CallArgs& args) {
  if (args.positional.empty() || !args.named.empty()) rt.fail("cycler() needs one value or more");
  return Value(rt.make<CyclerObject>(0, std::move(args.positional)));
}

Value joiner(Runtime& rt, const Value&, CallArgs& args) {
  const Bound bound(rt, "joiner()", args, {"sep"});
  return Value(rt.make<JoinerObject>(0, bound.value(0, Value::view(", "))));
}

Value lipsum(Runtime& rt, const Value&, CallArgs&) {
  rt.fail("the function 'lipsum' is not implemented");
}

constexpr MethodRow kGlobals[] = {
    {"cycler", cycler},   {"dict", dict},
    {"joiner", joiner},   {"lipsum", lipsum},
    {"namespace", space}, {"raise_exception", raise_exception},
    {"range", range},     {"strftime_now", strftime_now},
};

}  // namespace

const MethodRow* find_global(std::string_view name) {
  return find_row(kGlobals, name);
}
bool is_global(std::string_view name) {
  return find_global(name) != nullptr;
}

Value make_dict(Runtime& rt, CallArgs& args) {
  if (args.positional.size() > 1) rt.fail("dict() or namespace() of {} values; at most one", args.positional.size());
  auto* dict = rt.make<DictObject>(0);
  Value result(dict);
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    const Value members = from.is(Kind::space) ? Value::undefined(UndefinedReason::name, {}) : from;
    if (members.is_dict()) {
      for (std::size_t i = 0; i < dict_size(members); ++i) {
        auto [key, value] = dict_at(rt, members, i);
        dict_set(rt, *dict, std::move(key), std::move(value));
      }
    } else {
      if (from.is(Kind::space)) rt.fail("dict() of a namespace");
      Cursor cursor(rt, members);
      for (Value pair; cursor.next(rt, pair);) {
        const std::vector<Value> two = to_items(rt, pair);
        if (two.size() != 2) rt.fail("dict() of items of {} values, expected 2", two.size());
        dict_set(rt, *dict, two[0], two[1]);
      }
    }
  }
  for (auto& [name, value] : args.named) dict_set(rt, *dict, name, std::move(value));
  return result;
}

Bound::Bound(Runtime& rt, std::string_view function, CallArgs& args, std::initializer_list<std::string_view> names,
             std::size_t required, bool by_position)
    : rt_(rt), function_(function), values_(names.size(), nullptr) {
  if (args.positional.size() > names.size())
    rt.fail("{}: {} arguments, at most {}", function, args.positional.size(), names.size());
  for (std::size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [key, value] : args.named) {
    const auto* name = std::find(names.begin(), names.end(), key.as_text());
    if (name == names.end() || by_position) rt.fail("{}: unknown argument '{}'", function, key.as_text());
    const auto at = static_cast<std::size_t>(name - names.begin());
    if (values_[at] != nullptr) rt.fail("{}: the argument '{}' is given twice", function, key.as_text());
    values_[at] = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (values_[i] == nullptr)
      rt.fail("{}: the argument '{}' is missing", function, *(names.begin() + static_cast<std::ptrdiff_t>(i)));
}

bool Bound::flag(std::size_t i, bool fallback) const {
  return values_[i] != nullptr ? truth(rt_, *values_[i]) : fallback;
}

std::int64_t Bound::integer(std::size_t i, std::int64_t fallback) const {
  if (values_[i] == nullptr) return fallback;
  const Value& value = *values_[i];
  refuse_undefined(rt_, value);
  if (!value.is_integer()) rt_.fail("{}: found {}, expected an integer of 64 bits", function_, object_name(value));
  return value.as_integer();
}

std::string_view Bound::text(std::size_t i) const {
  refuse_undefined(rt_, *values_[i]);
  if (!values_[i]->is_text()) rt_.fail("{}: found {}, expected a text", function_, object_name(*values_[i]));
  return values_[i]->as_text();
}

}  // namespace qft::jinja
