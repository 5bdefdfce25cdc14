// The syntax tree. A template owns its nodes in one list; nodes point to each other. Internal to the module.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qft::jinja {

struct FilterRow;
struct TestRow;

/// The place of a name's value: `slot` of the function that is `hops` levels outside the running one.
struct Place {
  std::uint16_t hops = 0, slot = 0;
};

enum class ExprKind : std::uint8_t {
  none,
  boolean,
  integer,
  big,
  real,
  text,
  name,         // text: the name; place
  list,         // items
  tuple,        // items
  dict,         // items: key, value, key, value
  attribute,    // a . text
  item,         // a [ b ]
  slice,        // a [ items[0] : items[1] : items[2] ], null if omitted
  call,         // a ( args )
  filter,       // a | text ( args ); a is null in a filter block
  test,         // a is text ( args )
  conditional,  // b if a else c (null)
  logical_or,
  logical_and,
  logical_not,
  compare,  // a, then ops with items
  concat,   // items
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  negative,
  positive,
  member,  // a target: the attribute `text` of the namespace in `place`
};

enum class CompareOp : std::uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

struct Expr;

struct Arguments {
  std::vector<Expr*> positional;
  std::vector<std::pair<std::string, Expr*>> named;
  Expr* star = nullptr;
  Expr* star_star = nullptr;
};

struct Expr {
  ExprKind kind = ExprKind::none;
  bool boolean = false;
  bool store = false;    // names: a target
  bool declare = false;  // targets: a parameter of the function's own scope
  int line = 0;
  int height = 1;  // of the subtree
  std::int64_t integer = 0;
  double real = 0;
  std::string text;
  std::string space;  // members: the namespace's name
  Place place;
  Expr* a = nullptr;
  Expr* b = nullptr;
  Expr* c = nullptr;
  std::vector<Expr*> items;
  std::vector<CompareOp> ops;
  Arguments args;
  const FilterRow* filter = nullptr;
  const TestRow* test = nullptr;
};

/// An action on entry to a scope: fill a slot with a context variable, another slot's value, or undefined.
struct Load {
  enum Action : std::uint8_t { resolve, alias, undefined } action;
  std::uint16_t slot;
  std::uint16_t variable = 0;  // index into the template's variables
  Place from;
};

enum class StmtKind : std::uint8_t {
  output,         // items
  data,           // text
  set,            // target = value
  set_block,      // target, value (a filter chain or null), body
  loop,           // target, value, test, body, other
  condition,      // branches
  macro,          // function
  call,           // value (a call), function
  filter,         // value, body
  with,           // targets = values, body
  generation,     // function
  break_loop,     // break
  continue_loop,  // continue
};

struct Stmt;

/// Code with its own slots: the template, macros, call blocks, recursive loops, the `if` of a loop.
struct Function {
  std::string name;
  std::vector<Expr*> params;    // names
  std::vector<Expr*> defaults;  // for the last params
  std::vector<Stmt*> body;
  std::vector<Load> loads;
  std::uint16_t slots = 0;
  bool takes_caller = false, takes_kwargs = false, takes_varargs = false;
  std::uint16_t caller = 0, kwargs = 0, varargs = 0;  // their slots
};

struct Branch {
  Expr* test;  // null: else
  std::vector<Stmt*> body;
};

struct Stmt {
  StmtKind kind;
  int line = 0;
  bool recursive = false;
  bool extended = false;  // a loop that reads `loop`
  bool tracked = false;   // a generation block with a known position in the text
  std::string text;
  Expr* target = nullptr;
  Expr* value = nullptr;
  Expr* test = nullptr;
  std::vector<Expr*> items, targets;
  std::vector<Stmt*> body, other;
  std::vector<Branch> branches;
  std::vector<Load> loads, other_loads;  // for `body`, for `other`
  Place loop_place;                      // place of `loop` in the body; for a macro: the place of its name
  Function* function = nullptr;          // for macros, call and generation blocks, and recursive loops (their body)
  Function* filter = nullptr;            // a loop's test, with its own target
  Expr* filter_target = nullptr;
};

struct Tree {
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::deque<Function> functions;
  Function* root = nullptr;
  std::vector<std::string> variables;  // variables that loads refer to
  bool has_generation = false;
};

/// Throws Error "NAME:LINE: ...".
Tree parse_template(std::string_view source, const std::string& name);
/// Assigns a place to every name and loads to every scope.
void resolve_names(Tree& tree, const std::string& name);

}  // namespace qft::jinja
