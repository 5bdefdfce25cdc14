// Filters for lists.
#include <algorithm>

#include "filters.h"
#include "unicode.h"

namespace qft::jinja::filters {

Getter::Getter(Runtime& rt, const Value* attribute, const Value* fallback, bool lower) : lower_(lower) {
  if (fallback != nullptr && !fallback->is(Kind::none)) fallback_ = *fallback;
  if (attribute == nullptr || attribute->is(Kind::none)) return;
  if (!attribute->is_text()) {
    parts_.push_back(*attribute);
    return;
  }
  std::string_view path = attribute->as_text();
  for (;;) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string_view part = path.substr(0, dot);
    const bool digits = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
    parts_.push_back(digits ? *read_integer(rt, part, 10) : rt.text(std::string(part)));
    if (dot == path.size()) return;
    path.remove_prefix(dot + 1);
  }
}

Value Getter::operator()(Runtime& rt, Value item) const {
  for (const Value& part : parts_) {
    item = get_item(rt, item, part);
    if (item.is_undefined() && !fallback_.is(Kind::missing)) item = fallback_;
  }
  return lower_ ? ignore_case(rt, std::move(item)) : item;
}

Value ignore_case(Runtime& rt, Value value) {
  return value.is_text() ? rt.text(change_case(value.as_text(), Case::lower)) : value;
}

namespace {

/// Parses "a,b" into several attributes.
std::vector<Getter> make_getters(Runtime& rt, const Value* attribute, bool lower) {
  std::vector<Getter> getters;
  if (attribute == nullptr || !attribute->is_text()) {
    getters.emplace_back(rt, attribute, nullptr, lower);
    return getters;
  }
  std::string_view names = attribute->as_text();
  for (;;) {
    const std::size_t comma = std::min(names.find(','), names.size());
    const Value name = rt.text(std::string(names.substr(0, comma)));
    getters.emplace_back(rt, &name, nullptr, lower);
    if (comma == names.size()) return getters;
    names.remove_prefix(comma + 1);
  }
}

Value extreme(Runtime& rt, const Value& self, CallArgs& args, CompareOp better, std::string_view name) {
  const Bound bound(rt, name, args, {"case_sensitive", "attribute"});
  const Getter getter(rt, bound[1], nullptr, !bound.flag(0));
  Cursor cursor(rt, self);
  Value best, best_key;
  for (Value item; cursor.next(rt, item);) {
    Value key = getter(rt, item);
    if (!best_key.is(Kind::missing) && !ordered(rt, key, better, best_key)) continue;
    best = item;
    best_key = std::move(key);
  }
  return best_key.is(Kind::missing)
             ? Value::undefined(UndefinedReason::hint, "the list is empty, so it has no least or largest item")
             : best;
}

/// Iterates over lists of several items, for batch() and slice().
class Chunks final : public IteratorObject {
 public:
  Chunks(Runtime& rt, Value source, std::int64_t count, Value fill, bool slices)
      : cursor_(rt, std::move(source)), count_(count), fill_(std::move(fill)), slices_(slices) {}
  void clear() override {
    cursor_ = Cursor(*rt, Value::undefined(UndefinedReason::name, {}));
    fill_ = held_ = Value();
    all_.clear();
  }
  bool next(Runtime& runtime, Value& out) override { return slices_ ? next_slice(runtime, out) : next_batch(runtime, out); }

 private:
  bool next_batch(Runtime& runtime, Value& out) {
    std::vector<Value> items;
    if (!held_.is(Kind::missing)) items.push_back(std::exchange(held_, Value()));
    for (Value item; cursor_.next(runtime, item);) {
      // An item that does not fit starts the next list; a count below 1 never fits.
      if (started_ && static_cast<std::int64_t>(items.size()) == count_) {
        held_ = item;
        out = runtime.list(std::move(items));
        return true;
      }
      if (!started_ && count_ == 0) {
        started_ = true;
        held_ = item;
        out = runtime.list({});
        return true;
      }
      started_ = true;
      items.push_back(item);
    }
    if (items.empty()) return false;
    if (!fill_.is(Kind::none))
      while (static_cast<std::int64_t>(items.size()) < count_) {
        runtime.step();
        runtime.check_memory(items.size() * sizeof(Value));
        items.push_back(fill_);
      }
    out = runtime.list(std::move(items));
    return true;
  }

  bool next_slice(Runtime& runtime, Value& out) {
    if (!started_) {
      started_ = true;
      for (Value item; cursor_.next(runtime, item);) all_.push_back(item);
      if (count_ == 0) runtime.fail("slice: division by zero");
    }
    if (at_ >= count_) return false;
    const auto size = static_cast<std::int64_t>(all_.size());
    const std::int64_t each = size / count_, extra = size % count_;
    const std::int64_t begin = at_ * each + std::min(at_, extra), end = begin + each + (at_ < extra ? 1 : 0);
    std::vector<Value> items(all_.begin() + begin, all_.begin() + end);
    if (!fill_.is(Kind::none) && at_ >= extra) items.push_back(fill_);
    ++at_;
    out = runtime.list(std::move(items));
    return true;
  }

  Cursor cursor_;
  const std::int64_t count_;
  Value fill_, held_;
  const bool slices_;
  std::vector<Value> all_;
  std::int64_t at_ = 0;
  bool started_ = false;
};

class Unique final : public IteratorObject {
 public:
  Unique(Runtime& rt, Value source, Getter getter)
      : cursor_(rt, std::move(source)), getter_(std::move(getter)), seen_(rt.make<DictObject>(0)) {}
  void clear() override {
    cursor_ = Cursor(*rt, Value::undefined(UndefinedReason::name, {}));
    seen_ = Value();
    getter_ = Getter(*rt, nullptr);
  }
  bool next(Runtime& runtime, Value& out) override {
    for (Value item; cursor_.next(runtime, item);) {
      Value key = getter_(runtime, item);
      if (dict_find(runtime, seen_, key)) continue;
      dict_set(runtime, seen_.as<DictObject>(), std::move(key), Value::none());
      out = std::move(item);
      return true;
    }
    return false;
  }

 private:
  Cursor cursor_;
  Getter getter_;
  Value seen_;
};

/// Iterates over a list from its end, like Python's reversed().
class Reversed final : public IteratorObject {
 public:
  explicit Reversed(std::vector<Value> items) : items_(std::move(items)) {}
  void clear() override { items_.clear(); }
  bool next(Runtime&, Value& out) override {
    if (items_.empty()) return false;
    out = std::move(items_.back());
    items_.pop_back();
    return true;
  }

 private:
  std::vector<Value> items_;
};

class Pairs final : public IteratorObject {
 public:
  explicit Pairs(Value dict) : dict_(std::move(dict)) {}
  void clear() override { dict_ = Value(); }
  bool next(Runtime& runtime, Value& out) override {
    if (dict_.is_undefined() || at_ >= dict_size(dict_)) return false;
    auto [key, value] = dict_at(runtime, dict_, at_++);
    out = runtime.tuple({std::move(key), std::move(value)});
    return true;
  }

 private:
  Value dict_;
  std::size_t at_ = 0;
};

}  // namespace

Value batch(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "batch", args, {"linecount", "fill_with"}, 1);
  return Value(rt.make<Chunks>(0, rt, self, bound.integer(0, 0), bound.value(1, Value::none()), false));
}

Value slice(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "slice", args, {"slices", "fill_with"}, 1);
  return Value(rt.make<Chunks>(0, rt, self, bound.integer(0, 0), bound.value(1, Value::none()), true));
}

Value unique(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "unique", args, {"case_sensitive", "attribute"});
  return Value(rt.make<Unique>(0, rt, self, Getter(rt, bound[1], nullptr, !bound.flag(0))));
}

Value dictsort(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string_view by = bound[1] != nullptr ? bound.text(1) : "key";
  if (by != "key" && by != "value") rt.fail("dictsort: it sorts by 'key' or 'value', not '{}'", by);
  refuse_undefined(rt, self);
  if (!self.is_dict()) rt.fail("dictsort: found {}, expected a dict", object_name(self));
  std::vector<Value> pairs, keys;
  for (std::size_t i = 0; i < dict_size(self); ++i) {
    auto [key, value] = dict_at(rt, self, i);
    const Value& wanted = by == "key" ? key : value;
    keys.push_back(bound.flag(0) ? wanted : ignore_case(rt, wanted));
    pairs.push_back(rt.tuple({key, value}));
  }
  return rt.list(sort_by(rt, std::move(pairs), std::move(keys), bound.flag(2)));
}

Value first(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "first", args, {});
  Cursor cursor(rt, self);
  Value item;
  return cursor.next(rt, item) ? item : Value::undefined(UndefinedReason::hint, "the list is empty, so it has no first item");
}

Value last(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "last", args, {});
  if (self.is(Kind::iterator) || self.is(Kind::loop)) rt.fail("last: {} cannot be read from its end", object_name(self));
  if (self.is_text() || is_sequence(self) || self.is(Kind::range)) {
    const std::optional<std::size_t> size = length(rt, self);
    if (*size == 0) return Value::undefined(UndefinedReason::hint, "the list is empty, so it has no last item");
    return get_item(rt, self, Value::integer(-1));
  }
  std::vector<Value> all = to_items(rt, self);
  return all.empty() ? Value::undefined(UndefinedReason::hint, "the list is empty, so it has no last item") : all.back();
}

Value reverse(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "reverse", args, {});
  if (self.is_text()) {
    std::u32string chars = to_chars(self.as_text());
    std::reverse(chars.begin(), chars.end());
    return rt.text(to_text(chars));
  }
  std::vector<Value> all = to_items(rt, self);
  if (self.is(Kind::iterator) || self.is(Kind::loop)) {
    std::reverse(all.begin(), all.end());
    return rt.list(std::move(all));
  }
  const std::size_t bytes = all.size() * sizeof(Value);
  return Value(rt.make<Reversed>(bytes, std::move(all)));
}

Value items(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "items", args, {});
  if (!self.is_undefined() && !self.is_dict()) rt.fail("items: found {}, expected a dict", object_name(self));
  return Value(rt.make<Pairs>(0, self));
}

Value join(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "join", args, {"d", "attribute"});
  const Getter getter(rt, bound[1]);
  const Value separator = to_text(rt, bound.value(0, Value::view({})));
  std::string text;
  Cursor cursor(rt, self);
  bool is_first = true;
  for (Value item; cursor.next(rt, item); is_first = false) {
    if (!is_first) text += separator.as_text();
    append_text(rt, getter(rt, item), text);
    rt.check_memory(text.size());
  }
  return rt.text(std::move(text));
}

Value length_filter(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "length", args, {});
  const std::optional<std::size_t> size = length(rt, self);
  if (!size) rt.fail("length: {} has none", object_name(self));
  return Value::size(*size);
}

Value list(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "list", args, {});
  return rt.list(to_items(rt, self));
}

Value maximum(Runtime& rt, const Value& self, CallArgs& args) {
  return extreme(rt, self, args, CompareOp::gt, "max");
}
Value minimum(Runtime& rt, const Value& self, CallArgs& args) {
  return extreme(rt, self, args, CompareOp::lt, "min");
}

Value sort(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "sort", args, {"reverse", "case_sensitive", "attribute"});
  const std::vector<Getter> getters = make_getters(rt, bound[2], !bound.flag(1));
  std::vector<Value> all = to_items(rt, self), keys;
  for (const Value& item : all) {
    std::vector<Value> key;
    for (const Getter& getter : getters) key.push_back(getter(rt, item));
    keys.push_back(rt.list(std::move(key)));
  }
  return rt.list(sort_by(rt, std::move(all), std::move(keys), bound.flag(0)));
}

Value groupby(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const Getter getter(rt, bound[0], bound[1], !bound.flag(2)), exact(rt, bound[0], bound[1]);
  std::vector<Value> all = to_items(rt, self), keys;
  for (const Value& item : all) keys.push_back(getter(rt, item));
  all = sort_by(rt, std::move(all), std::move(keys), false);
  std::vector<Value> groups;
  for (std::size_t i = 0; i < all.size();) {
    const Value key = getter(rt, all[i]);
    std::vector<Value> members;
    for (; i < all.size() && equal(rt, getter(rt, all[i]), key); ++i) members.push_back(all[i]);
    const Value shown = bound.flag(2) ? key : exact(rt, members[0]);
    const Value group = rt.tuple({shown, rt.list(std::move(members))});
    group.as<ListObject>().grouped = true;
    groups.push_back(group);
  }
  return rt.list(std::move(groups));
}

Value sum(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "sum", args, {"attribute", "start"});
  const Getter getter(rt, bound[0]);
  Value total = bound.value(1, Value::integer(0));
  if (total.is_text()) rt.fail("sum: texts are joined by join, not summed");
  Cursor cursor(rt, self);
  for (Value item; cursor.next(rt, item);) total = binary(rt, ExprKind::add, total, getter(rt, item));
  return total;
}

}  // namespace qft::jinja::filters
