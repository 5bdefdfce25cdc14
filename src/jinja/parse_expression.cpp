#include <charconv>
#include <cstdlib>
#include <optional>

#include "big_integer.h"
#include "methods.h"
#include "parser.h"

namespace qft::jinja {
namespace {

// Evaluation uses stack for each level of a tree; a chain of operators adds one level per operator.
constexpr int kMaxHeight = 400;
constexpr std::size_t kMaxDigits = 4300;  // Python's limit

bool is_constant_name(std::string_view name) {
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"})
    if (name == word) return true;
  return false;
}

}  // namespace

Token Parser::take() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::take_name(std::string_view text) {
  if (!current().is_name(text)) return false;
  take();
  return true;
}

bool Parser::take_op(std::string_view text) {
  if (!current().is_op(text)) return false;
  take();
  return true;
}

void Parser::expect_op(std::string_view text) {
  if (!take_op(text)) refuse(current().line, "found {}, expected '{}'", describe(current()), text);
}

void Parser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) refuse(current().line, "found {}, expected {}", describe(current()), what);
  take();
}

std::string Parser::expect_name(std::string_view what) {
  if (current().kind != TokenKind::name) refuse(current().line, "found {}, expected {}", describe(current()), what);
  return take().value;
}

void Parser::cover(Expr& expr, const Expr* child) const {
  if (child == nullptr) return;
  expr.height = std::max(expr.height, child->height + 1);
  if (expr.height > kMaxHeight) refuse(expr.line, "an expression of more than {} nested operators", kMaxHeight);
}

void Parser::cover(Expr& expr, const Arguments& args) const {
  for (const Expr* arg : args.positional) cover(expr, arg);
  for (const auto& [name, arg] : args.named) cover(expr, arg);
  cover(expr, args.star);
  cover(expr, args.star_star);
}

Expr* Parser::make(ExprKind kind, int line, Expr* a, Expr* b, Expr* c) {
  Expr& expr = tree_.exprs.emplace_back();
  expr.kind = kind;
  expr.line = line;
  expr.a = a;
  expr.b = b;
  expr.c = c;
  cover(expr, a);
  cover(expr, b);
  cover(expr, c);
  return &expr;
}

Expr* Parser::parse_expression(bool conditional) {
  const Depth depth(*this);
  return conditional ? parse_conditional() : parse_or();
}

Expr* Parser::parse_conditional() {
  const std::size_t unknown = unknown_.size();
  int line = current().line;
  Expr* value = parse_or();
  while (take_name("if")) {
    Expr* test = parse_or();
    Expr* other = nullptr;
    if (take_name("else")) {
      const Depth depth(*this);
      other = parse_conditional();
    }
    unknown_.resize(unknown);
    value = make(ExprKind::conditional, line, test, value, other);
    line = current().line;
  }
  return value;
}

Expr* Parser::parse_or() {
  const int line = current().line;
  Expr* left = parse_and();
  while (take_name("or")) left = make(ExprKind::logical_or, line, left, parse_and());
  return left;
}

Expr* Parser::parse_and() {
  const int line = current().line;
  Expr* left = parse_not();
  while (take_name("and")) left = make(ExprKind::logical_and, line, left, parse_not());
  return left;
}

Expr* Parser::parse_not() {
  const int line = current().line;
  if (!take_name("not")) return parse_compare();
  const Depth depth(*this);
  return make(ExprKind::logical_not, line, parse_not());
}

Expr* Parser::parse_compare() {
  struct Row {
    std::string_view op;
    CompareOp means;
  };
  static constexpr Row kRows[] = {{"==", CompareOp::eq}, {"!=", CompareOp::ne}, {"<", CompareOp::lt},
                                  {"<=", CompareOp::le}, {">", CompareOp::gt},  {">=", CompareOp::ge}};
  Expr* first = parse_sum();
  Expr* compare = nullptr;
  for (;;) {
    const int line = current().line;
    std::optional<CompareOp> op;
    for (const Row& row : kRows)
      if (current().is_op(row.op)) op = row.means;
    if (current().is_name("in")) op = CompareOp::in;
    if (current().is_name("not") && lookahead().is_name("in")) {
      take();
      op = CompareOp::not_in;
    }
    if (!op) return compare != nullptr ? compare : first;
    take();
    if (compare == nullptr) compare = make(ExprKind::compare, line, first);
    compare->ops.push_back(*op);
    compare->items.push_back(parse_sum());
    cover(*compare, compare->items.back());
  }
}

Expr* Parser::parse_sum() {
  Expr* left = parse_concat();
  while (current().is_op("+") || current().is_op("-")) {
    const Token op = take();
    left = make(op.value == "+" ? ExprKind::add : ExprKind::subtract, op.line, left, parse_concat());
  }
  return left;
}

Expr* Parser::parse_concat() {
  Expr* first = parse_product();
  if (!current().is_op("~")) return first;
  Expr* concat = make(ExprKind::concat, current().line, nullptr);
  concat->items.push_back(first);
  while (take_op("~")) concat->items.push_back(parse_product());
  for (const Expr* item : concat->items) cover(*concat, item);
  return concat;
}

Expr* Parser::parse_product() {
  Expr* left = parse_power();
  for (;;) {
    const ExprKind kind = current().is_op("*")    ? ExprKind::multiply
                          : current().is_op("/")  ? ExprKind::divide
                          : current().is_op("//") ? ExprKind::floor_divide
                          : current().is_op("%")  ? ExprKind::modulo
                                                  : ExprKind::none;
    if (kind == ExprKind::none) return left;
    const int line = take().line;
    left = make(kind, line, left, parse_power());
  }
}

Expr* Parser::parse_power() {
  Expr* left = parse_unary();
  while (current().is_op("**")) {
    const int line = take().line;
    left = make(ExprKind::power, line, left, parse_unary());
  }
  return left;
}

Expr* Parser::parse_unary(bool with_filter) {
  Expr* expr = nullptr;
  if (current().is_op("-") || current().is_op("+")) {
    const Depth depth(*this);
    const Token op = take();
    expr = make(op.value == "-" ? ExprKind::negative : ExprKind::positive, op.line, parse_unary(false));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(expr);
  return with_filter ? parse_filters(expr) : expr;
}

Expr* Parser::parse_number() {
  const Token token = take();
  if (token.kind == TokenKind::real) {
    Expr* expr = make(ExprKind::real, token.line);
    expr->real = std::strtod(token.value.c_str(), nullptr);
    return expr;
  }
  std::string digits = token.value;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) digits.erase(0, 2);
  }
  if (digits.size() > kMaxDigits) refuse(token.line, "an integer of {} digits; the limit is {}", digits.size(), kMaxDigits);
  Expr* expr = make(ExprKind::integer, token.line);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), expr->integer, base);
  if (error == std::errc()) return expr;
  BigInteger value;
  for (const char c : digits) value = value * BigInteger(base) + BigInteger(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  expr->kind = ExprKind::big;
  expr->text = value.to_string();
  return expr;
}

Expr* Parser::parse_primary(bool members) {
  const Token token = current();
  if (token.kind == TokenKind::name) {
    take();
    if (is_constant_name(token.value)) {
      const char first = static_cast<char>(token.value[0] | 0x20);
      Expr* expr = make(first == 'n' ? ExprKind::none : ExprKind::boolean, token.line);
      expr->boolean = first == 't';
      return expr;
    }
    Expr* expr = make(ExprKind::name, token.line);
    expr->text = token.value;
    if (members && take_op(".")) {
      expr->kind = ExprKind::member;
      expr->space = token.value;
      expr->text = expect_name("an attribute's name");
    }
    return expr;
  }
  if (token.kind == TokenKind::text) {
    Expr* expr = make(ExprKind::text, token.line);
    while (current().kind == TokenKind::text) expr->text += take().value;
    return expr;
  }
  if (token.kind == TokenKind::integer || token.kind == TokenKind::real) return parse_number();
  if (take_op("(")) {
    const Depth depth(*this);
    TupleForm form;
    form.brackets = true;
    Expr* expr = parse_tuple(form);
    expect_op(")");
    return expr;
  }
  if (token.is_op("[")) return parse_list();
  if (token.is_op("{")) return parse_dict();
  refuse(token.line, "found {}, expected an expression", describe(token));
}

Expr* Parser::parse_tuple(const TupleForm& form) {
  const int line = current().line;
  std::vector<Expr*> items;
  bool is_tuple = false;
  const auto at_end = [&] {
    return current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end || current().is_op(")") ||
           (!form.end.empty() && current().is_name(form.end));
  };
  for (;;) {
    if (!items.empty()) expect_op(",");
    if (at_end()) break;
    items.push_back(form.primaries ? parse_primary(form.members) : parse_expression(form.conditional));
    if (!current().is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return items[0];
    if (!form.brackets) refuse(line, "found {}, expected an expression", describe(current()));
  }
  Expr* tuple = make(ExprKind::tuple, line);
  tuple->items = std::move(items);
  for (const Expr* item : tuple->items) cover(*tuple, item);
  return tuple;
}

Expr* Parser::parse_list() {
  const Depth depth(*this);
  Expr* list = make(ExprKind::list, take().line);
  while (!current().is_op("]")) {
    if (!list->items.empty()) expect_op(",");
    if (current().is_op("]")) break;
    list->items.push_back(parse_expression());
    cover(*list, list->items.back());
  }
  expect_op("]");
  return list;
}

Expr* Parser::parse_dict() {
  const Depth depth(*this);
  Expr* dict = make(ExprKind::dict, take().line);
  while (!current().is_op("}")) {
    if (!dict->items.empty()) expect_op(",");
    if (current().is_op("}")) break;
    dict->items.push_back(parse_expression());
    expect_op(":");
    dict->items.push_back(parse_expression());
    cover(*dict, dict->items[dict->items.size() - 2]);
    cover(*dict, dict->items.back());
  }
  expect_op("}");
  return dict;
}

Expr* Parser::parse_postfix(Expr* expr) {
  for (;;) {
    if (current().is_op(".") || current().is_op("["))
      expr = parse_subscript(expr);
    else if (current().is_op("("))
      expr = parse_call(expr);
    else
      return expr;
  }
}

Expr* Parser::parse_filters(Expr* expr) {
  for (;;) {
    if (current().is_op("|"))
      expr = parse_filter(expr);
    else if (current().is_name("is"))
      expr = parse_test(expr);
    else if (current().is_op("("))
      expr = parse_call(expr);
    else
      return expr;
  }
}

Expr* Parser::parse_subscript(Expr* expr) {
  const Token token = take();
  if (token.value == ".") {
    if (current().kind == TokenKind::integer) {
      Expr* index = parse_number();
      return make(ExprKind::item, token.line, expr, index);
    }
    Expr* attribute = make(ExprKind::attribute, token.line, expr);
    attribute->text = expect_name("a name or a number");
    return attribute;
  }
  const Depth depth(*this);
  std::vector<Expr*> indices;
  while (!current().is_op("]")) {
    if (!indices.empty()) expect_op(",");
    indices.push_back(parse_index());
  }
  expect_op("]");
  if (indices.size() == 1) {
    if (indices[0]->kind != ExprKind::slice) return make(ExprKind::item, token.line, expr, indices[0]);
    Expr* slice = indices[0];
    slice->a = expr;
    cover(*slice, expr);
    return slice;
  }
  for (const Expr* index : indices)
    if (index->kind == ExprKind::slice && index->a == nullptr) refuse(token.line, "several slices in one pair of brackets");
  Expr* tuple = make(ExprKind::tuple, token.line);
  tuple->items = std::move(indices);
  for (const Expr* item : tuple->items) cover(*tuple, item);
  return make(ExprKind::item, token.line, expr, tuple);
}

Expr* Parser::parse_index() {
  const int line = current().line;
  Expr* first = current().is_op(":") ? nullptr : parse_expression();
  if (!take_op(":")) return first;
  Expr* slice = make(ExprKind::slice, line);
  slice->items = {first, nullptr, nullptr};
  if (!current().is_op(":") && !current().is_op("]") && !current().is_op(",")) slice->items[1] = parse_expression();
  if (take_op(":") && !current().is_op("]") && !current().is_op(",")) slice->items[2] = parse_expression();
  for (const Expr* item : slice->items) cover(*slice, item);
  return slice;
}

Arguments Parser::parse_arguments() {
  const Depth depth(*this);
  const int line = current().line;
  expect_op("(");
  Arguments args;
  const auto need = [&](bool ok) {
    if (!ok) refuse(line, "arguments in an order that a call cannot have");
  };
  bool comma = false;
  while (!current().is_op(")")) {
    if (comma) {
      expect_op(",");
      if (current().is_op(")")) break;
    }
    comma = true;
    if (take_op("*")) {
      need(args.star == nullptr && args.star_star == nullptr);
      args.star = parse_expression();
    } else if (take_op("**")) {
      need(args.star_star == nullptr);
      args.star_star = parse_expression();
    } else if (current().kind == TokenKind::name && lookahead().is_op("=")) {
      need(args.star_star == nullptr);
      std::string key = take().value;
      take();
      for (const auto& [name, value] : args.named)
        if (name == key) refuse(line, "the argument '{}' is given twice", key);
      args.named.emplace_back(std::move(key), parse_expression());
    } else {
      need(args.star == nullptr && args.star_star == nullptr && args.named.empty());
      args.positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return args;
}

Expr* Parser::parse_call(Expr* expr) {
  const int line = current().line;
  Expr* call = make(ExprKind::call, line, expr);
  call->args = parse_arguments();
  cover(*call, call->args);
  return call;
}

std::string Parser::parse_dotted_name(std::string_view what) {
  std::string name = expect_name(what);
  while (take_op(".")) name += "." + expect_name(what);
  return name;
}

Expr* Parser::parse_filter(Expr* expr, bool first_without_pipe) {
  while (first_without_pipe || current().is_op("|")) {
    if (!first_without_pipe) take();
    first_without_pipe = false;
    const int line = current().line;
    Expr* filter = make(ExprKind::filter, line, expr);
    filter->text = parse_dotted_name("a filter's name");
    if (is_unsupported_filter(filter->text)) refuse(line, "the filter '{}' is not implemented", filter->text);
    filter->filter = find_filter(filter->text);
    if (filter->filter == nullptr) unknown_.push_back(filter);
    if (current().is_op("(")) filter->args = parse_arguments();
    cover(*filter, filter->args);
    expr = filter;
  }
  return expr;
}

Expr* Parser::parse_test(Expr* expr) {
  const int line = take().line;
  const bool negated = take_name("not");
  Expr* test = make(ExprKind::test, line, expr);
  test->text = parse_dotted_name("a test's name");
  test->test = find_test(test->text);
  if (test->test == nullptr) unknown_.push_back(test);
  const bool operand = current().kind == TokenKind::name || current().kind == TokenKind::text ||
                       current().kind == TokenKind::integer || current().kind == TokenKind::real || current().is_op("[") ||
                       current().is_op("{");
  if (current().is_op("(")) {
    test->args = parse_arguments();
  } else if (operand && !current().is_name("else") && !current().is_name("or") && !current().is_name("and")) {
    if (current().is_name("is")) refuse(line, "found a second 'is': tests cannot be chained");
    test->args.positional.push_back(parse_postfix(parse_primary()));
  }
  cover(*test, test->args);
  return negated ? make(ExprKind::logical_not, line, test) : test;
}

void Parser::make_target(Expr& expr, bool declare) {
  if (expr.kind == ExprKind::tuple) {
    for (Expr* item : expr.items) make_target(*item, declare);
  } else if (expr.kind == ExprKind::name) {
    expr.store = true;
    expr.declare = declare;
  } else if (expr.kind != ExprKind::member) {
    refuse(expr.line, "only names, tuples of them and attributes of namespaces can be set");
  }
}

Expr* Parser::parse_target(std::string_view end, bool members) {
  TupleForm form;
  form.primaries = true;
  form.members = members;
  form.end = end;
  Expr* target = parse_tuple(form);
  make_target(*target, false);
  return target;
}

}  // namespace qft::jinja
