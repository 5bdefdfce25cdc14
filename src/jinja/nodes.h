// The syntax tree. A template owns its nodes in one list; they point to each other. Internal to the module.
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

/// Where a name's value lies: `slot` of the function that is `hops` functions outside the running one.
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
  slice,        // a [ items[0] : items[1] : items[2] ], null where left out
  call,         // a ( args )
  filter,       // a | text ( args ); a is null for the text of a block
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
  bool store = false;    // of a name: a target
  bool declare = false;  // of a target: a parameter of its own scope
  int line = 0;
  int height = 1;  // of the tree below
  std::int64_t integer = 0;
  double real = 0;
  std::string text;
  std::string space;  // of a member: the namespace's name
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

/// What a scope does when it is entered: a slot gets a variable of the context, another slot's value, or nothing.
struct Load {
  enum Action : std::uint8_t { resolve, alias, undefined } action;
  std::uint16_t slot;
  std::uint16_t variable = 0;  // of the template's table of variables
  Place from;
};

enum class StmtKind : std::uint8_t {
  output,      // items
  data,        // text
  set,         // target = value
  set_block,   // target, value (a filter chain or null), body
  loop,        // target, value, test, body, other
  condition,   // branches
  macro,       // function
  call,        // value (a call), function
  filter,      // value, body
  with,        // targets = values, body
  generation,  // function
  leave,       // break
  again,       // continue
};

struct Stmt;

/// What runs with slots of its own: the template, macros, call blocks, recursive loops, the `if` of a loop.
struct Function {
  std::string name;
  std::vector<Expr*> params;    // names
  std::vector<Expr*> defaults;  // of the last params
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
  bool extended = false;  // a loop whose `loop` is read
  bool tracked = false;   // a generation block whose place in the text is known
  std::string text;
  Expr* target = nullptr;
  Expr* value = nullptr;
  Expr* test = nullptr;
  std::vector<Expr*> items, targets;
  std::vector<Stmt*> body, other;
  std::vector<Branch> branches;
  std::vector<Load> loads, other_loads;  // of `body`, of `other`
  Place loop_place;                      // of `loop` in the body; of a macro: its name's
  Function* function = nullptr;          // of macros, call and generation blocks; of a recursive loop, whose body it is
  Function* filter = nullptr;            // of a loop's test, which has its own target
  Expr* filter_target = nullptr;
};

struct Tree {
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::deque<Function> functions;
  Function* root = nullptr;
  std::vector<std::string> variables;  // that loads name
  bool has_generation = false;
};

/// Throws Error "NAME:LINE: ...".
Tree parse_template(std::string_view source, const std::string& name);
/// Gives every name its place and every scope its loads.
void resolve_names(Tree& tree, const std::string& name);

}  // namespace qft::jinja
