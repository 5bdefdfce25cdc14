// The table of tests, used after `is`.
#include "methods.h"
#include "unicode.h"

namespace qft::jinja {
namespace {

template <Kind kind>
bool is_kind(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "a test", args, {});
  return self.is(kind);
}

bool is_integer_test(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "integer", args, {});
  return self.is(Kind::integer) || self.is(Kind::big);
}

template <bool value>
bool is_boolean_value(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "true or false", args, {});
  return self.is(Kind::boolean) && (self.as_integer() != 0) == value;
}

bool is_defined(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "defined", args, {});
  return !self.is_undefined();
}

bool is_mapping(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "mapping", args, {});
  return self.is_dict();
}

bool is_number(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "number", args, {});
  return self.is_number();
}

bool is_sequence_test(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "sequence", args, {});
  return self.is_text() || self.is_dict() || is_sequence(self) || self.is(Kind::range) || self.is_undefined();
}

bool is_iterable(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "iterable", args, {});
  return is_sequence_test(rt, self, args) || self.is(Kind::view) || self.is(Kind::iterator) || self.is(Kind::loop);
}

bool is_callable(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "callable", args, {});
  return self.is(Kind::function) || self.is(Kind::macro) || self.is(Kind::loop) || self.is(Kind::joiner) || self.is_undefined();
}

bool is_escaped(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "escaped", args, {});
  return self.is_markup();
}

template <bool upper>
bool has_case_test(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "lower or upper", args, {});
  return has_case(to_text(rt, self).as_text(), upper);
}

template <int rest>
bool has_rest(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "odd or even", args, {});
  return equal(rt, binary(rt, ExprKind::modulo, self, Value::integer(2)), Value::integer(rest));
}

bool is_divisible(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "divisibleby", args, {"num"}, 1);
  return equal(rt, binary(rt, ExprKind::modulo, self, *bound[0]), Value::integer(0));
}

bool is_filter(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "filter", args, {});
  if (!self.is_text()) hash(rt, self);
  return self.is_text() && (find_filter(self.as_text()) != nullptr || is_unsupported_filter(self.as_text()));
}

bool is_test(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "test", args, {});
  if (!self.is_text()) hash(rt, self);
  return self.is_text() && find_test(self.as_text()) != nullptr;
}

bool is_same_test(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "sameas", args, {"other"}, 1);
  return self.is_same(*bound[0]);
}

bool is_in(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "in", args, {"seq"}, 1);
  return contains(rt, *bound[0], self);
}

template <bool same>
bool is_equal(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "eq or ne", args, {"other"}, 1, true);
  return equal(rt, self, *bound[0]) == same;
}

template <CompareOp op>
bool is_ordered(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "lt, le, gt or ge", args, {"other"}, 1, true);
  return ordered(rt, self, op, *bound[0]);
}

constexpr TestRow kTests[] = {
    {"odd", has_rest<1>},
    {"even", has_rest<0>},
    {"divisibleby", is_divisible},
    {"defined", is_defined},
    {"undefined", is_kind<Kind::undefined>},
    {"filter", is_filter},
    {"test", is_test},
    {"none", is_kind<Kind::none>},
    {"boolean", is_kind<Kind::boolean>},
    {"false", is_boolean_value<false>},
    {"true", is_boolean_value<true>},
    {"integer", is_integer_test},
    {"float", is_kind<Kind::real>},
    {"lower", has_case_test<false>},
    {"upper", has_case_test<true>},
    {"string", is_kind<Kind::text>},
    {"mapping", is_mapping},
    {"number", is_number},
    {"sequence", is_sequence_test},
    {"iterable", is_iterable},
    {"callable", is_callable},
    {"sameas", is_same_test},
    {"escaped", is_escaped},
    {"in", is_in},
    {"==", is_equal<true>},
    {"eq", is_equal<true>},
    {"equalto", is_equal<true>},
    {"!=", is_equal<false>},
    {"ne", is_equal<false>},
    {">", is_ordered<CompareOp::gt>},
    {"gt", is_ordered<CompareOp::gt>},
    {"greaterthan", is_ordered<CompareOp::gt>},
    {"ge", is_ordered<CompareOp::ge>},
    {">=", is_ordered<CompareOp::ge>},
    {"<", is_ordered<CompareOp::lt>},
    {"lt", is_ordered<CompareOp::lt>},
    {"lessthan", is_ordered<CompareOp::lt>},
    {"<=", is_ordered<CompareOp::le>},
    {"le", is_ordered<CompareOp::le>},
};

}  // namespace

const TestRow* find_test(std::string_view name) {
  return find_row(kTests, name);
}

}  // namespace qft::jinja
