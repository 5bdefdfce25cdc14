// Runs a syntax tree. Internal to the module.
#pragma once

#include <string>
#include <vector>

#include "runtime.h"

namespace qft::jinja {

enum class Flow : std::uint8_t { normal, break_loop, continue_loop };

class Interpreter {
 public:
  /// Writes to `out`; names resolve to the slots in `scope`.
  Interpreter(Runtime& rt, Scope* scope, std::string& out) : rt_(rt), scope_(scope), out_(&out) {}

  Value eval(const Expr& expr);
  Flow run(const std::vector<Stmt*>& body);
  void enter(const std::vector<Load>& loads);
  void assign(const Expr& target, const Value& value);
  Flow run_loop(const Stmt& stmt, Value items, std::size_t depth);
  Value& slot(Place place);

 private:
  Flow run(const Stmt& stmt);
  Value eval_name(const Expr& expr);
  Value eval_items(const Expr& expr, Kind kind);
  Value eval_dict(const Expr& expr);
  Value eval_call(const Expr& expr, const Value* caller);
  Value eval_filter(const Expr& expr, const Value* block);
  bool eval_test(const Expr& expr);
  bool eval_compare(const Expr& expr);
  Value eval_concat(const Expr& expr);
  void collect(const Arguments& from, CallArgs& to);
  void output(const Value& value);
  Flow run_condition(const Stmt& stmt);
  Flow run_loop_body(const Stmt& stmt, Cursor* cursor, LoopObject* loop, bool& any);
  void run_generation(const Stmt& stmt);
  void check_namespaces(const Expr& target);
  Flow run_captured(const std::vector<Stmt*>& body, std::string& text);
  Value make_macro(const Function& function, bool is_call_block);

  Runtime& rt_;
  Scope* scope_;
  std::string* out_;
};

}  // namespace qft::jinja
