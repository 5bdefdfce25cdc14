// Parses tokens into the syntax tree. Internal to the module.
#pragma once

#include "qft/core/error.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lexer.h"
#include "nodes.h"

namespace qft::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& name) : tokens_(std::move(tokens)), name_(name) {}
  Tree run();

 private:
  class Depth;
  /// How a tuple without brackets is parsed, and its end.
  struct TupleForm {
    bool primaries = false;     // only names and literals: a target
    bool conditional = true;    // items may be `a if b else c`
    bool brackets = false;      // in brackets; may be empty
    bool members = false;       // targets may be namespace attributes
    std::string_view end = {};  // a name that also ends the tuple
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& lookahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool take_name(std::string_view text);
  bool take_op(std::string_view text);
  void expect_op(std::string_view text);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name(std::string_view what);
  template <class... Args>
  [[noreturn]] void refuse(int line, fmt::format_string<Args...> text, Args&&... args) const {
    fail("{}:{}: {}", name_, line, fmt::format(text, std::forward<Args>(args)...));
  }

  Expr* make(ExprKind kind, int line, Expr* a = nullptr, Expr* b = nullptr, Expr* c = nullptr);
  void cover(Expr& expr, const Expr* child) const;
  void cover(Expr& expr, const Arguments& args) const;
  Stmt* make(StmtKind kind, int line);

  Expr* parse_expression(bool conditional = true);
  Expr* parse_conditional();
  Expr* parse_or();
  Expr* parse_and();
  Expr* parse_not();
  Expr* parse_compare();
  Expr* parse_sum();
  Expr* parse_concat();
  Expr* parse_product();
  Expr* parse_power();
  Expr* parse_unary(bool with_filter = true);
  Expr* parse_primary(bool members = false);
  Expr* parse_number();
  Expr* parse_tuple(const TupleForm& form);
  Expr* parse_list();
  Expr* parse_dict();
  Expr* parse_postfix(Expr* expr);
  Expr* parse_filters(Expr* expr);
  Expr* parse_subscript(Expr* expr);
  Expr* parse_index();
  Arguments parse_arguments();
  Expr* parse_call(Expr* expr);
  Expr* parse_filter(Expr* expr, bool first_without_pipe = false);
  Expr* parse_test(Expr* expr);
  Expr* parse_target(std::string_view end, bool members);
  void make_target(Expr& expr, bool declare);
  std::string parse_dotted_name(std::string_view what);

  std::vector<Stmt*> parse_body(std::initializer_list<std::string_view> ends, std::string_view opened, int line);
  std::vector<Stmt*> parse_statements(std::initializer_list<std::string_view> ends, std::string_view opened, int line);
  Stmt* parse_statement();
  void refuse_unknown();
  Stmt* parse_for(int line);
  Stmt* parse_if(int line);
  Stmt* parse_set(int line);
  Stmt* parse_macro(int line);
  Stmt* parse_call_block(int line);
  Stmt* parse_filter_block(int line);
  Stmt* parse_with(int line);
  Stmt* parse_print(int line);
  Stmt* parse_generation(int line);
  Stmt* parse_jump(int line, StmtKind kind);
  void parse_signature(Function& function);
  void parse_function_body(Function& function, std::string_view end, std::string_view opened, int line);

  std::vector<Token> tokens_;
  const std::string& name_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;                     // enclosing loops that a break could leave
  bool soft_ = false;                 // inside an `if`: an unknown filter is an error only when it runs
  std::vector<const Expr*> unknown_;  // unknown filters and tests outside an `if`
  int captures_ = 0;                  // enclosing blocks that capture their text
  Tree tree_;
};

/// Counts one level of nesting. Too many levels are an error, because each uses stack.
class Parser::Depth {
 public:
  explicit Depth(Parser& parser) : parser_(parser) {
    constexpr int kMaxNested = 100;
    if (++parser_.depth_ > kMaxNested) parser_.refuse(parser_.current().line, "nested more than {} deep", kMaxNested);
  }
  ~Depth() { --parser_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Parser& parser_;
};

}  // namespace qft::jinja
