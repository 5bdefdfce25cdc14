#include <utility>

#include "parser.h"

namespace qft::jinja {
namespace {

/// Sets a variable during the object's lifetime.
template <class T>
class ScopedValue {
 public:
  ScopedValue(T& variable, T value) : variable_(variable), before_(std::exchange(variable, value)) {}
  ~ScopedValue() { variable_ = before_; }
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;

 private:
  T& variable_;
  T before_;
};

std::string join_ends(std::initializer_list<std::string_view> ends) {
  std::string text;
  for (const std::string_view end : ends) text.append(text.empty() ? "'" : " or '").append(end).append("'");
  return text;
}

}  // namespace

Tree Parser::run() {
  Function& root = tree_.functions.emplace_back();
  tree_.root = &root;
  root.body = parse_body({}, "", 0);
  return std::move(tree_);
}

Stmt* Parser::make(StmtKind kind, int line) {
  Stmt& stmt = tree_.stmts.emplace_back();
  stmt.kind = kind;
  stmt.line = line;
  return &stmt;
}

void Parser::refuse_unknown() {
  if (!soft_ && !unknown_.empty())
    refuse(unknown_[0]->line, "unknown {} '{}'", unknown_[0]->kind == ExprKind::filter ? "filter" : "test", unknown_[0]->text);
  unknown_.clear();
}

// Parses text, outputs and statements up to a statement in `ends`; its name is then the next token.
std::vector<Stmt*> Parser::parse_body(std::initializer_list<std::string_view> ends, std::string_view opened, int line) {
  std::vector<Stmt*> body;
  for (;;) {
    const Token& token = current();
    if (token.kind == TokenKind::end) {
      if (ends.size() > 0)
        refuse(token.line, "the template ends in the '{}' of line {}, expected {}", opened, line, join_ends(ends));
      return body;
    }
    if (token.kind == TokenKind::data) {
      Stmt* stmt = make(StmtKind::data, token.line);
      stmt->text = take().value;
      body.push_back(stmt);
    } else if (token.kind == TokenKind::variable_begin) {
      Stmt* stmt = make(StmtKind::output, take().line);
      stmt->items.push_back(parse_tuple({}));
      refuse_unknown();
      expect(TokenKind::variable_end, "'}}'");
      body.push_back(stmt);
    } else {
      expect(TokenKind::block_begin, "'{%'");
      for (const std::string_view end : ends)
        if (current().is_name(end)) return body;
      body.push_back(parse_statement());
      refuse_unknown();
      expect(TokenKind::block_end, "'%}'");
    }
  }
}

// Parses the end of a statement's tag and its body. Also takes the closing name if there is only one.
std::vector<Stmt*> Parser::parse_statements(std::initializer_list<std::string_view> ends, std::string_view opened, int line) {
  const Depth depth(*this);
  refuse_unknown();
  take_op(":");
  expect(TokenKind::block_end, "'%}'");
  std::vector<Stmt*> body = parse_body(ends, opened, line);
  if (ends.size() == 1) take();
  return body;
}

Stmt* Parser::parse_statement() {
  if (current().kind != TokenKind::name) refuse(current().line, "found {}, expected a statement's name", describe(current()));
  const Token tag = take();
  const std::string& name = tag.value;
  if (name == "for") return parse_for(tag.line);
  if (name == "if") return parse_if(tag.line);
  if (name == "set") return parse_set(tag.line);
  if (name == "macro") return parse_macro(tag.line);
  if (name == "call") return parse_call_block(tag.line);
  if (name == "filter") return parse_filter_block(tag.line);
  if (name == "with") return parse_with(tag.line);
  if (name == "print") return parse_print(tag.line);
  if (name == "generation") return parse_generation(tag.line);
  if (name == "break") return parse_jump(tag.line, StmtKind::break_loop);
  if (name == "continue") return parse_jump(tag.line, StmtKind::continue_loop);
  for (const std::string_view out : {"block", "extends", "include", "import", "from", "autoescape"})
    if (name == out) refuse(tag.line, "the statement '{}' is not implemented", name);
  refuse(tag.line, "'{}' is not a statement, or there is nothing for it to end here", name);
}

Stmt* Parser::parse_for(int line) {
  Stmt* stmt = make(StmtKind::loop, line);
  stmt->target = parse_target("in", false);
  make_target(*stmt->target, true);
  if (!take_name("in")) refuse(line, "found {}, expected 'in'", describe(current()));
  TupleForm form;
  form.conditional = false;
  form.end = "recursive";
  stmt->value = parse_tuple(form);
  if (take_name("if")) stmt->test = parse_expression();
  stmt->recursive = take_name("recursive");
  {
    const ScopedValue loops(loops_, stmt->recursive ? 1 : loops_ + 1);
    const ScopedValue soft(soft_, false);
    const ScopedValue captures(captures_, captures_ + (stmt->recursive ? 1 : 0));
    stmt->body = parse_statements({"endfor", "else"}, "for", line);
  }
  if (take().value == "else") {
    const ScopedValue loops(loops_, stmt->recursive ? 0 : loops_);
    const ScopedValue soft(soft_, false);
    const ScopedValue captures(captures_, captures_ + (stmt->recursive ? 1 : 0));
    stmt->other = parse_statements({"endfor"}, "for", line);
  }
  return stmt;
}

Stmt* Parser::parse_if(int line) {
  const ScopedValue soft(soft_, true);
  Stmt* stmt = make(StmtKind::condition, line);
  TupleForm form;
  form.conditional = false;
  for (;;) {
    Branch branch{parse_tuple(form), {}};
    branch.body = parse_statements({"elif", "else", "endif"}, "if", line);
    stmt->branches.push_back(std::move(branch));
    const bool is_last = !current().is_name("elif"), has_else = current().is_name("else");
    take();
    if (!is_last) continue;
    if (has_else) stmt->branches.push_back({nullptr, parse_statements({"endif"}, "if", line)});
    return stmt;
  }
}

Stmt* Parser::parse_set(int line) {
  Expr* target = parse_target("", true);
  if (take_op("=")) {
    Stmt* stmt = make(StmtKind::set, line);
    stmt->target = target;
    stmt->value = parse_tuple({});
    return stmt;
  }
  Stmt* stmt = make(StmtKind::set_block, line);
  stmt->target = target;
  if (current().is_op("|")) stmt->value = parse_filter(nullptr);
  const ScopedValue soft(soft_, false);
  const ScopedValue captures(captures_, captures_ + 1);
  stmt->body = parse_statements({"endset"}, "set", line);
  return stmt;
}

void Parser::parse_signature(Function& function) {
  expect_op("(");
  while (!current().is_op(")")) {
    if (!function.params.empty()) expect_op(",");
    const int line = current().line;
    Expr* param = make(ExprKind::name, line);
    param->text = expect_name("a parameter's name");
    make_target(*param, true);
    for (const Expr* other : function.params)
      if (other->text == param->text) refuse(line, "the parameter '{}' is given twice", param->text);
    if (take_op("="))
      function.defaults.push_back(parse_expression());
    else if (!function.defaults.empty())
      refuse(line, "the parameter '{}' without a default follows one with a default", param->text);
    function.params.push_back(param);
  }
  expect_op(")");
}

void Parser::parse_function_body(Function& function, std::string_view end, std::string_view opened, int line) {
  const ScopedValue loops(loops_, 0);
  const ScopedValue soft(soft_, false);
  const ScopedValue captures(captures_, captures_ + 1);
  function.body = parse_statements({end}, opened, line);
}

Stmt* Parser::parse_macro(int line) {
  Stmt* stmt = make(StmtKind::macro, line);
  stmt->target = make(ExprKind::name, line);
  stmt->target->text = expect_name("a macro's name");
  make_target(*stmt->target, false);
  stmt->function = &tree_.functions.emplace_back();
  stmt->function->name = stmt->target->text;
  parse_signature(*stmt->function);
  parse_function_body(*stmt->function, "endmacro", "macro", line);
  return stmt;
}

Stmt* Parser::parse_call_block(int line) {
  Stmt* stmt = make(StmtKind::call, line);
  stmt->function = &tree_.functions.emplace_back();
  if (current().is_op("(")) parse_signature(*stmt->function);
  stmt->value = parse_expression();
  if (stmt->value->kind != ExprKind::call) refuse(line, "'call' needs the call of a macro");
  parse_function_body(*stmt->function, "endcall", "call", line);
  return stmt;
}

Stmt* Parser::parse_filter_block(int line) {
  Stmt* stmt = make(StmtKind::filter, line);
  stmt->value = parse_filter(nullptr, true);
  const ScopedValue soft(soft_, false);
  const ScopedValue captures(captures_, captures_ + 1);
  stmt->body = parse_statements({"endfilter"}, "filter", line);
  return stmt;
}

Stmt* Parser::parse_with(int line) {
  Stmt* stmt = make(StmtKind::with, line);
  while (current().kind != TokenKind::block_end && !current().is_op(":")) {
    if (!stmt->targets.empty()) expect_op(",");
    Expr* target = parse_target("", false);
    make_target(*target, true);
    expect_op("=");
    stmt->targets.push_back(target);
    stmt->items.push_back(parse_expression());
  }
  const ScopedValue soft(soft_, false);
  stmt->body = parse_statements({"endwith"}, "with", line);
  return stmt;
}

Stmt* Parser::parse_print(int line) {
  Stmt* stmt = make(StmtKind::output, line);
  while (current().kind != TokenKind::block_end) {
    if (!stmt->items.empty()) expect_op(",");
    stmt->items.push_back(parse_expression());
  }
  return stmt;
}

Stmt* Parser::parse_generation(int line) {
  Stmt* stmt = make(StmtKind::generation, line);
  stmt->tracked = captures_ == 0;
  tree_.has_generation = tree_.has_generation || stmt->tracked;
  stmt->function = &tree_.functions.emplace_back();
  parse_function_body(*stmt->function, "endgeneration", "generation", line);
  return stmt;
}

Stmt* Parser::parse_jump(int line, StmtKind kind) {
  if (loops_ == 0) refuse(line, "'{}' outside a loop", kind == StmtKind::break_loop ? "break" : "continue");
  return make(kind, line);
}

Tree parse_template(std::string_view source, const std::string& name) {
  Tree tree = Parser(tokenize(source, name), name).run();
  resolve_names(tree, name);
  return tree;
}

}  // namespace qft::jinja
