// Evaluates expressions.
#include "interpreter.h"

namespace qft::jinja {

Value& Interpreter::slot(Place place) {
  Scope* scope = scope_;
  for (std::uint16_t hops = place.hops; hops > 0; --hops) scope = scope->parent;
  return scope->slots[place.slot];
}

Value Interpreter::eval_name(const Expr& expr) {
  const Value& value = slot(expr.place);
  return value.is(Kind::missing) ? Value::undefined(UndefinedReason::name, expr.text) : value;
}

Value Interpreter::eval(const Expr& expr) {
  rt_.step();
  switch (expr.kind) {
    case ExprKind::name:
      return eval_name(expr);
    case ExprKind::text:
      return Value::view(expr.text);
    case ExprKind::none:
      return Value::none();
    case ExprKind::boolean:
      return Value::boolean(expr.boolean);
    case ExprKind::integer:
      return Value::integer(expr.integer);
    case ExprKind::real:
      return Value::real(expr.real);
    case ExprKind::big:
      return rt_.big(BigInteger::parse(expr.text));
    default:
      break;
  }
  const Nested nested(rt_);
  switch (expr.kind) {
    case ExprKind::list:
      return eval_items(expr, Kind::list);
    case ExprKind::tuple:
      return eval_items(expr, Kind::tuple);
    case ExprKind::dict:
      return eval_dict(expr);
    case ExprKind::attribute: {
      const Value of = eval(*expr.a);
      rt_.line = expr.line;
      return get_attribute(rt_, of, expr.text);
    }
    case ExprKind::item: {
      const Value of = eval(*expr.a), key = eval(*expr.b);
      rt_.line = expr.line;
      return get_item(rt_, of, key);
    }
    case ExprKind::slice: {
      const Value of = eval(*expr.a);
      const auto bound = [&](std::size_t i) { return expr.items[i] != nullptr ? eval(*expr.items[i]) : Value::none(); };
      const Value begin = bound(0), end = bound(1), step = bound(2);
      rt_.line = expr.line;
      return get_slice(rt_, of, begin, end, step);
    }
    case ExprKind::call:
      return eval_call(expr, nullptr);
    case ExprKind::filter:
      return eval_filter(expr, nullptr);
    case ExprKind::test:
      return Value::boolean(eval_test(expr));
    case ExprKind::conditional:
      if (truth(rt_, eval(*expr.a))) return eval(*expr.b);
      if (expr.c != nullptr) return eval(*expr.c);
      return Value::undefined(UndefinedReason::hint, "an inline 'if' was false and has no 'else'");
    case ExprKind::logical_or: {
      Value left = eval(*expr.a);
      return truth(rt_, left) ? left : eval(*expr.b);
    }
    case ExprKind::logical_and: {
      Value left = eval(*expr.a);
      return truth(rt_, left) ? eval(*expr.b) : left;
    }
    case ExprKind::logical_not:
      return Value::boolean(!truth(rt_, eval(*expr.a)));
    case ExprKind::compare:
      return Value::boolean(eval_compare(expr));
    case ExprKind::concat:
      return eval_concat(expr);
    case ExprKind::negative:
    case ExprKind::positive: {
      const Value value = eval(*expr.a);
      rt_.line = expr.line;
      return negative(rt_, value, expr.kind == ExprKind::negative);
    }
    default: {
      const Value left = eval(*expr.a), right = eval(*expr.b);
      rt_.line = expr.line;
      return binary(rt_, expr.kind, left, right);
    }
  }
}

Value Interpreter::eval_items(const Expr& expr, Kind kind) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const Expr* item : expr.items) items.push_back(eval(*item));
  return rt_.sequence(kind, std::move(items));
}

Value Interpreter::eval_dict(const Expr& expr) {
  auto* dict = rt_.make<DictObject>(0);
  Value result(dict);
  for (std::size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    Value key = eval(*expr.items[i]);
    dict_set(rt_, *dict, std::move(key), eval(*expr.items[i + 1]));
  }
  return result;
}

void Interpreter::collect(const Arguments& from, CallArgs& to) {
  to.positional.reserve(from.positional.size());
  for (const Expr* arg : from.positional) to.positional.push_back(eval(*arg));
  if (from.star != nullptr)
    for (Value& item : to_items(rt_, eval(*from.star))) to.positional.push_back(std::move(item));
  for (const auto& [name, arg] : from.named) to.named.emplace_back(Value::view(name), eval(*arg));
  if (from.star_star == nullptr) return;
  const Value dict = eval(*from.star_star);
  if (!dict.is_dict()) rt_.fail("'**' needs a dict, not {}", object_name(dict));
  for (std::size_t i = 0; i < dict_size(dict); ++i) {
    auto [key, value] = dict_at(rt_, dict, i);
    if (!key.is_text()) rt_.fail("'**': the key of an argument is {}, expected a text", object_name(key));
    for (const auto& [name, other] : to.named)
      if (name.as_text() == key.as_text()) rt_.fail("the argument '{}' is given twice", key.as_text());
    rt_.step(1 + to.named.size() / 8);
    to.named.emplace_back(std::move(key), std::move(value));
  }
}

Value Interpreter::eval_call(const Expr& expr, const Value* caller) {
  CallArgs args;
  if (expr.a->kind == ExprKind::attribute) {
    // Call a found method directly: most calls are method calls, and need no function object.
    const Value of = eval(*expr.a->a);
    rt_.line = expr.line;
    if (const MethodRow* method = of.is_undefined() ? nullptr : find_method(of, expr.a->text)) {
      collect(expr.args, args);
      if (caller != nullptr) args.named.emplace_back(Value::view("caller"), *caller);
      rt_.line = expr.line;
      return method->run(rt_, of, args);
    }
    const Value callee = get_attribute(rt_, of, expr.a->text);
    collect(expr.args, args);
    if (caller != nullptr) args.named.emplace_back(Value::view("caller"), *caller);
    rt_.line = expr.line;
    return call(rt_, callee, args);
  }
  const Value callee = eval(*expr.a);
  collect(expr.args, args);
  if (caller != nullptr) args.named.emplace_back(Value::view("caller"), *caller);
  rt_.line = expr.line;
  return call(rt_, callee, args);
}

Value Interpreter::eval_filter(const Expr& expr, const Value* block) {
  const Value self = expr.a == nullptr ? *block : block != nullptr ? eval_filter(*expr.a, block) : eval(*expr.a);
  rt_.line = expr.line;
  if (expr.filter == nullptr) rt_.fail("unknown filter '{}'", expr.text);
  CallArgs args;
  collect(expr.args, args);
  rt_.line = expr.line;
  return expr.filter->run(rt_, self, args);
}

bool Interpreter::eval_test(const Expr& expr) {
  const Value self = eval(*expr.a);
  rt_.line = expr.line;
  if (expr.test == nullptr) rt_.fail("unknown test '{}'", expr.text);
  CallArgs args;
  collect(expr.args, args);
  rt_.line = expr.line;
  return expr.test->run(rt_, self, args);
}

bool Interpreter::eval_compare(const Expr& expr) {
  Value left = eval(*expr.a);
  for (std::size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.items[i]);
    rt_.line = expr.line;
    const CompareOp op = expr.ops[i];
    bool holds = false;
    if (op == CompareOp::eq || op == CompareOp::ne)
      holds = equal(rt_, left, right) == (op == CompareOp::eq);
    else if (op == CompareOp::in || op == CompareOp::not_in)
      holds = contains(rt_, right, left) == (op == CompareOp::in);
    else
      holds = ordered(rt_, left, op, right);
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::eval_concat(const Expr& expr) {
  std::string text;
  for (const Expr* item : expr.items) {
    append_text(rt_, eval(*item), text);
    rt_.check_memory(text.size());
  }
  return rt_.text(std::move(text));
}

}  // namespace qft::jinja
