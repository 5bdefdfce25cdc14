#include "runtime.h"

#include <cstdlib>
#include <limits>

#include "unicode.h"

namespace qft::jinja {

Runtime::Runtime(const Tree& tree, const std::string& name, const RenderOptions& options)
    : tree_(tree), name_(name), options_(options) {}

Runtime::~Runtime() {
  // Clear all objects before deleting any, so that cycles are deleted too.
  ending_ = true;
  variables.clear();
  for (Object* object = first_; object != nullptr; object = object->next) object->clear();
  while (first_ != nullptr) {
    Object* object = first_;
    first_ = object->next;
    delete object;
  }
}

std::string Runtime::where() const {
  return fmt::format("{}:{}: ", name_, line);
}

void Runtime::fail_steps() const {
  fail("more than {} steps (the limit): the template does not end, or the conversation is too long for it",
       options_.limits.steps);
}

void Runtime::check_memory(std::size_t bytes) const {
  const std::size_t limit = options_.limits.memory_bytes;
  if (bytes > limit || memory_ > limit - bytes) fail("its values need more than {} bytes of memory (the limit)", limit);
}

void Runtime::check_output(std::size_t bytes) const {
  if (bytes > options_.limits.output_bytes) fail("a text of more than {} bytes (the limit)", options_.limits.output_bytes);
}

void Runtime::charge(Object& object, std::size_t bytes) {
  check_memory(bytes);
  object.bytes += bytes;
  memory_ += bytes;
}

void Runtime::add(Object& object, std::size_t bytes) {
  object.rt = this;
  object.bytes = bytes;
  memory_ += bytes;
  object.next = first_;
  if (first_ != nullptr) first_->previous = &object;
  first_ = &object;
}

void Runtime::remove(Object& object) {
  memory_ -= object.bytes;
  (object.previous != nullptr ? object.previous->next : first_) = object.next;
  if (object.next != nullptr) object.next->previous = object.previous;
}

void Value::drop() {
  if (--u_.object->refs == 0) end_object(u_.object);
}

void end_object(Object* object) {
  Runtime& rt = *object->rt;
  if (rt.ending_) return;
  if (rt.busy_) {
    rt.pending_.push_back(object);
    return;
  }
  rt.busy_ = true;
  for (;;) {
    rt.remove(*object);
    delete object;
    if (rt.pending_.empty()) break;
    object = rt.pending_.back();
    rt.pending_.pop_back();
  }
  rt.busy_ = false;
}

Value Runtime::text(std::string value) {
  if (value.empty()) return Value::view({});
  work(value.size());
  const std::size_t bytes = value.capacity();
  return Value(make<TextObject>(bytes, std::move(value)));
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
  const std::size_t bytes = items.capacity() * sizeof(Value);
  step(1 + items.size() / 4);
  return Value(make<ListObject>(bytes, kind, std::move(items)));
}

Value Runtime::big(BigInteger value) {
  if (const std::optional<std::int64_t> small = value.to_int64()) return Value::integer(*small);
  constexpr std::size_t kMaxWords = 4300;  // words of nine digits; Python prints up to 4300 digits
  if (value.size() > kMaxWords) fail("an integer of more than {} digits (the limit)", kMaxWords * 9);
  const std::size_t bytes = value.size() * sizeof(std::uint32_t);
  step(1 + value.size());
  return Value(make<BigObject>(bytes, std::move(value)));
}

Value Runtime::undefined(UndefinedReason reason, std::string_view name, Kind of) {
  constexpr std::size_t kKept = 200;
  if (name.size() > kKept) name = char_slice(name, 0, kKept / 4);
  check_memory(names_bytes_ += name.size() + 64);
  names_.push_back(std::make_unique<std::string>(name));
  return Value::undefined(reason, *names_.back(), of);
}

Scope::Scope(std::size_t count, Scope* outer) : Object(Kind::missing), slots(count), parent(outer) {
  if (parent != nullptr) ++parent->refs;
}

void Scope::clear() {
  slots.clear();
  if (parent != nullptr && --parent->refs == 0) end_object(parent);
  parent = nullptr;
}

Value Value::json(const Json& value, Runtime& rt) {
  switch (value.type()) {
    case Json::value_t::object:
    case Json::value_t::array: {
      Value result(value.is_object() ? Kind::json_dict : Kind::json_list);
      result.u_.json = &value;
      return result;
    }
    case Json::value_t::string: {
      const auto& text = value.get_ref<const std::string&>();
      if (text.size() > std::numeric_limits<std::uint32_t>::max())
        rt.fail("a text of {} bytes in the variables: too long", text.size());
      return view(text);
    }
    case Json::value_t::boolean:
      return boolean(value.get<bool>());
    case Json::value_t::number_integer:
      return integer(value.get<std::int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = value.get<std::uint64_t>();
      if (number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return integer(static_cast<std::int64_t>(number));
      return rt.big(BigInteger::parse(std::to_string(number)));
    }
    case Json::value_t::number_float:
      return real(value.get<double>());
    case Json::value_t::binary: {
      const std::string digits(value.get_binary().begin(), value.get_binary().end());
      if (digits == "NaN" || digits.ends_with("Infinity")) return real(std::strtod(digits.c_str(), nullptr));
      return rt.big(BigInteger::parse(digits));
    }
    default:
      return none();
  }
}

// ---- Iteration

Cursor::Cursor(Runtime& rt, Value source) : source_(std::move(source)) {
  switch (source_.kind()) {
    case Kind::undefined:
    case Kind::text:
    case Kind::json_list:
    case Kind::json_dict:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::view:
    case Kind::iterator:
    case Kind::loop:
      return;
    default:
      rt.fail("{} cannot be iterated", object_name(source_));
  }
}

bool Cursor::next(Runtime& rt, Value& out) {
  rt.step();
  switch (source_.kind()) {
    case Kind::undefined:
      return false;
    case Kind::text: {
      const std::string_view text = source_.as_text();
      if (at_ >= text.size()) return false;
      const std::size_t begin = at_;
      next_char(text, at_);
      out = rt.text(std::string(text.substr(begin, at_ - begin)));
      return true;
    }
    case Kind::range: {
      const auto& range = source_.as<RangeObject>();
      if (at_ >= static_cast<std::size_t>(range.count)) return false;
      out = Value::integer(range.start + range.step * static_cast<std::int64_t>(at_++));
      return true;
    }
    case Kind::json_dict:
    case Kind::dict:
      if (at_ >= dict_size(source_)) return false;
      out = dict_at(rt, source_, at_++).first;
      return true;
    case Kind::view: {
      const auto& view = source_.as<ViewObject>();
      if (at_ >= dict_size(view.dict)) return false;
      auto [key, value] = dict_at(rt, view.dict, at_++);
      if (view.of == ViewOf::items)
        out = rt.tuple({std::move(key), std::move(value)});
      else
        out = view.of == ViewOf::keys ? std::move(key) : std::move(value);
      return true;
    }
    case Kind::iterator: {
      const Nested nested(rt);
      return source_.as<IteratorObject>().next(rt, out);
    }
    case Kind::loop: {
      const Nested nested(rt);
      auto& loop = source_.as<LoopObject>();
      if (!loop.next(rt, out)) return false;
      out = rt.tuple({out, source_});
      return true;
    }
    default:
      if (at_ >= list_size(source_)) return false;
      out = list_at(rt, source_, at_++);
      return true;
  }
}

std::optional<std::size_t> Cursor::remaining(Runtime& rt) const {
  if (source_.is(Kind::iterator) || source_.is(Kind::loop)) return std::nullopt;
  const std::optional<std::size_t> all = length(rt, source_);
  return all ? std::optional(*all) : std::nullopt;
}

void LoopObject::clear() {
  cursor = Cursor(*rt, Value::undefined(UndefinedReason::name, {}));
  scope.reset();
  after = before = current = changed = Value();
}

const Value* LoopObject::peek(Runtime& runtime) {
  if (after.is(Kind::missing)) {
    Value value;
    if (!cursor.next(runtime, value)) return nullptr;
    after = std::move(value);
  }
  return &after;
}

bool LoopObject::next(Runtime& runtime, Value& out) {
  Value value;
  if (!after.is(Kind::missing))
    value = std::exchange(after, Value());
  else if (!cursor.next(runtime, value))
    return false;
  ++index0;
  before = std::exchange(current, value);
  out = std::move(value);
  return true;
}

std::size_t LoopObject::length(Runtime& runtime) {
  if (counted) return *counted;
  if (cursor.source().is(Kind::iterator) || cursor.source().is(Kind::loop)) {
    std::vector<Value> rest;
    for (Value value; cursor.next(runtime, value);) rest.push_back(value);
    counted = rest.size() + static_cast<std::size_t>(index0 + 1) + (after.is(Kind::missing) ? 0 : 1);
    cursor = Cursor(runtime, runtime.list(std::move(rest)));
  } else {
    counted = cursor.remaining(runtime);
  }
  return *counted;
}

// ---- Lists and dicts

bool is_sequence(const Value& value) {
  return value.is_list() || value.is(Kind::tuple);
}

std::size_t list_size(const Value& list) {
  return list.is(Kind::json_list) ? list.as_json().size() : list.as<ListObject>().items.size();
}

Value list_at(Runtime& rt, const Value& list, std::size_t index) {
  return list.is(Kind::json_list) ? Value::json(list.as_json()[index], rt) : list.as<ListObject>().items[index];
}

std::vector<Value> to_items(Runtime& rt, const Value& value) {
  std::vector<Value> items;
  Cursor cursor(rt, value);
  for (Value item; cursor.next(rt, item);) {
    rt.check_memory(items.size() * sizeof(Value));
    items.push_back(std::move(item));
    item = Value();
  }
  return items;
}

std::size_t dict_size(const Value& dict) {
  return dict.is(Kind::json_dict) ? dict.as_json().size() : dict.as<DictObject>().pairs.size();
}

std::pair<Value, Value> dict_at(Runtime& rt, const Value& dict, std::size_t index) {
  if (dict.is(Kind::dict)) return dict.as<DictObject>().pairs[index];
  const auto& members = dict.as_json().get_ref<const Json::object_t&>();
  const auto& [key, value] = *(members.begin() + static_cast<std::ptrdiff_t>(index));
  return {Value::view(key), Value::json(value, rt)};
}

std::optional<Value> dict_find(Runtime& rt, const Value& dict, std::string_view key) {
  if (dict.is(Kind::dict)) return dict_find(rt, dict, Value::view(key));
  const auto& members = dict.as_json().get_ref<const Json::object_t&>();
  rt.step(1 + members.size() / 16);
  for (const auto& [name, value] : members)
    if (name == key) return Value::json(value, rt);
  return std::nullopt;
}

namespace {

constexpr std::size_t kSmallDict = 8;

std::size_t find_pair(Runtime& rt, const DictObject& dict, const Value& key) {
  if (dict.pairs.size() <= kSmallDict) {
    for (std::size_t i = 0; i < dict.pairs.size(); ++i)
      if (equal(rt, dict.pairs[i].first, key)) return i;
    return dict.pairs.size();
  }
  const auto [begin, end] = dict.places.equal_range(hash(rt, key));
  for (auto place = begin; place != end; ++place)
    if (equal(rt, dict.pairs[place->second].first, key)) return place->second;
  return dict.pairs.size();
}

}  // namespace

std::optional<Value> dict_find(Runtime& rt, const Value& dict, const Value& key) {
  if (dict.is(Kind::json_dict)) {
    if (!key.is_text()) {
      hash(rt, key);
      return std::nullopt;
    }
    return dict_find(rt, dict, key.as_text());
  }
  if (!key.is_text()) hash(rt, key);
  const auto& object = dict.as<DictObject>();
  const std::size_t place = find_pair(rt, object, key);
  return place < object.pairs.size() ? std::optional(object.pairs[place].second) : std::nullopt;
}

void dict_set(Runtime& rt, DictObject& dict, Value key, Value value) {
  const std::size_t code = hash(rt, key);
  const std::size_t place = find_pair(rt, dict, key);
  if (place < dict.pairs.size()) {
    dict.pairs[place].second = std::move(value);
    return;
  }
  rt.charge(dict, 2 * sizeof(dict.pairs[0]));
  dict.pairs.emplace_back(std::move(key), std::move(value));
  if (dict.pairs.size() <= kSmallDict) return;
  if (dict.pairs.size() == kSmallDict + 1) {
    for (std::size_t i = 0; i < kSmallDict; ++i)
      dict.places.emplace(hash(rt, dict.pairs[i].first), static_cast<std::uint32_t>(i));
  }
  dict.places.emplace(code, static_cast<std::uint32_t>(dict.pairs.size() - 1));
}

}  // namespace qft::jinja
