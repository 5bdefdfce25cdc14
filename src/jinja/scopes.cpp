// Jinja2's scopes: the meaning of each name is settled before a template runs. A scope (of a loop's body, a macro ...) gives
// each name that it sets a slot, which starts with the outer scope's value. A name that no scope sets is a context variable.
#include "qft/core/error.h"

#include <functional>
#include <map>
#include <set>
#include <string>

#include "nodes.h"

namespace qft::jinja {
namespace {

using Visit = std::function<void(Expr&)>;

void walk(Expr* expr, const Visit& visit);

void walk(Arguments& args, const Visit& visit) {
  for (Expr* arg : args.positional) walk(arg, visit);
  for (auto& [name, arg] : args.named) walk(arg, visit);
  walk(args.star, visit);
  walk(args.star_star, visit);
}

// Visits nodes in the order of Jinja2's own nodes: the first occurrence decides the lookup of a name.
void walk(Expr* expr, const Visit& visit) {
  if (expr == nullptr) return;
  visit(*expr);
  walk(expr->a, visit);
  walk(expr->b, visit);
  walk(expr->c, visit);
  for (Expr* item : expr->items) walk(item, visit);
  walk(expr->args, visit);
}

void walk(const std::vector<Stmt*>& body, const Visit& visit) {
  for (Stmt* stmt : body) {
    if (stmt->kind == StmtKind::call) walk(stmt->value, visit);
    if (stmt->function != nullptr && stmt->kind != StmtKind::loop) {
      if (stmt->kind == StmtKind::macro) walk(stmt->target, visit);
      for (Expr* param : stmt->function->params) walk(param, visit);
      for (Expr* value : stmt->function->defaults) walk(value, visit);
      walk(stmt->function->body, visit);
      continue;
    }
    walk(stmt->target, visit);
    for (Expr* target : stmt->targets) walk(target, visit);
    if (stmt->kind != StmtKind::filter) walk(stmt->value, visit);
    for (Expr* item : stmt->items) walk(item, visit);
    for (Branch& branch : stmt->branches) {
      walk(branch.test, visit);
      walk(branch.body, visit);
    }
    walk(stmt->body, visit);
    walk(stmt->other, visit);
    walk(stmt->test, visit);
    if (stmt->kind == StmtKind::filter) walk(stmt->value, visit);
  }
}

// Returns the names among `names` that a body reads before it sets them.
std::set<std::string> find_undeclared(const std::vector<Stmt*>& body, std::set<std::string> names) {
  std::set<std::string> found;
  walk(body, [&](Expr& expr) {
    if (expr.kind != ExprKind::name) return;
    if (expr.store)
      names.erase(expr.text);
    else if (names.count(expr.text) > 0)
      found.insert(expr.text);
  });
  return found;
}

/// Slots are assigned per function, by the scope's level and the name.
struct FunctionScope {
  FunctionScope* parent;
  Function* function;
  std::map<std::pair<int, std::string>, std::uint16_t> slots;
};

enum class Source { parameter, resolve, alias, undefined };

/// The names of a scope, with the source of each.
struct Symbols {
  Symbols* parent;
  FunctionScope* function;
  int level;
  std::map<std::string, Source> names;
  std::set<std::string> stores;

  Symbols* find(const std::string& name) {
    for (Symbols* scope = this; scope != nullptr; scope = scope->parent)
      if (scope->names.count(name) > 0) return scope;
    return nullptr;
  }
  Symbols* find_outer(const std::string& name) { return parent != nullptr ? parent->find(name) : nullptr; }
  void store(const std::string& name) {
    stores.insert(name);
    if (names.count(name) == 0) names[name] = find_outer(name) != nullptr ? Source::alias : Source::undefined;
  }
  void declare(const std::string& name) {
    stores.insert(name);
    names[name] = Source::parameter;
  }
  void load(const std::string& name) {
    if (find(name) == nullptr) names[name] = Source::resolve;
  }
};

class Resolver {
 public:
  Resolver(Tree& tree, const std::string& name) : tree_(tree), name_(name) {}

  void run() {
    FunctionScope scope{nullptr, tree_.root, {}};
    Symbols root{nullptr, &scope, 0, {}, {}};
    note(tree_.root->body, root);
    resolve(tree_.root->body, root);
    tree_.root->loads = loads_of(root);
    finish(scope);
  }

 private:
  // Notes the names that a scope's own statements read and set; skips inner scopes.
  void note(Expr* expr, Symbols& symbols) {
    walk(expr, [&](Expr& node) {
      if (node.kind == ExprKind::member) symbols.load(node.space);
      if (node.kind != ExprKind::name) return;
      if (node.declare)
        symbols.declare(node.text);
      else if (node.store)
        symbols.store(node.text);
      else
        symbols.load(node.text);
    });
  }

  void note(const std::vector<Stmt*>& body, Symbols& symbols) {
    for (Stmt* stmt : body) {
      switch (stmt->kind) {
        case StmtKind::output:
        case StmtKind::with:
          for (Expr* item : stmt->items) note(item, symbols);
          break;
        case StmtKind::set:
          note(stmt->value, symbols);
          note(stmt->target, symbols);
          break;
        case StmtKind::set_block:
        case StmtKind::macro:
          note(stmt->target, symbols);
          break;
        case StmtKind::loop:
        case StmtKind::call:
        case StmtKind::filter:
          note(stmt->value, symbols);
          break;
        case StmtKind::condition:
          note_branches(*stmt, symbols);
          break;
        default:
          break;
      }
    }
  }

  // If only some branches set a name, it is a context variable when they are not taken.
  void note_branches(Stmt& stmt, Symbols& symbols) {
    note(stmt.branches[0].test, symbols);
    count_copies(symbols, stmt.branches.size() + 2);
    std::vector<Symbols> branches(3, symbols);  // if, all elif, else
    note(stmt.branches[0].body, branches[0]);
    for (std::size_t i = 1; i < stmt.branches.size(); ++i) {
      Branch& branch = stmt.branches[i];
      if (branch.test == nullptr)
        note(branch.body, branches[2]);
      else
        note_branch(branch, branches[1]);
    }
    merge(symbols, branches);
  }
  // Each branch copies its scope's names: an untrusted template with thousands of both would take minutes.
  void count_copies(const Symbols& symbols, std::size_t branches) {
    constexpr std::size_t kMaxCopies = 10'000'000;
    if ((copies_ += branches * symbols.names.size()) > kMaxCopies)
      fail("{}: too many names in scopes with too many branches", name_);
  }
  void note_branch(Branch& branch, Symbols& symbols) {
    note(branch.test, symbols);
    std::vector<Symbols> branches(1, symbols);
    note(branch.body, branches[0]);
    merge(symbols, branches);
  }
  static void merge(Symbols& symbols, const std::vector<Symbols>& branches) {
    std::set<std::string> stores;
    for (const Symbols& branch : branches)
      for (const std::string& name : branch.stores)
        if (symbols.stores.count(name) == 0) stores.insert(name);
    for (const Symbols& branch : branches) {
      for (const auto& [name, source] : branch.names) symbols.names[name] = source;
      symbols.stores.insert(branch.stores.begin(), branch.stores.end());
    }
    for (const std::string& name : stores)
      symbols.names[name] = symbols.find_outer(name) != nullptr ? Source::alias : Source::resolve;
  }

  std::uint16_t slot_of(Symbols& symbols, const std::string& name) {
    auto& slots = symbols.function->slots;
    const auto [entry, added] = slots.try_emplace({symbols.level, name}, static_cast<std::uint16_t>(slots.size()));
    if (added && slots.size() >= 0xFFFF) fail("{}: more than {} names in one scope", name_, 0xFFFF);
    return entry->second;
  }

  Place place_of(const std::string& name, Symbols& symbols) {
    Symbols* owner = symbols.find(name);
    if (owner == nullptr) {  // in a filter of a set block, which Jinja2 does not visit
      symbols.load(name);
      owner = &symbols;
    }
    Place place;
    for (const FunctionScope* scope = symbols.function; scope != owner->function; scope = scope->parent) ++place.hops;
    place.slot = slot_of(*owner, name);
    return place;
  }

  std::uint16_t variable(const std::string& name) {
    const auto [entry, added] = variables_.try_emplace(name, static_cast<std::uint16_t>(variables_.size()));
    if (!added) return entry->second;
    if (name == "self") fail("{}: the name 'self', of blocks, is not implemented", name_);
    if (variables_.size() >= 0xFFFF) fail("{}: more than {} variables", name_, 0xFFFF);
    tree_.variables.push_back(name);
    return entry->second;
  }

  std::vector<Load> loads_of(Symbols& symbols) {
    std::vector<Load> loads;
    for (const auto& [name, source] : symbols.names) {
      if (source == Source::parameter) continue;
      Load load{Load::undefined, slot_of(symbols, name), 0, {}};
      if (source == Source::resolve) {
        load.action = Load::resolve;
        load.variable = variable(name);
      } else if (source == Source::alias) {
        load.action = Load::alias;
        load.from = place_of(name, *symbols.parent);
        if (symbols.parent->function != symbols.function) ++load.from.hops;
      }
      loads.push_back(load);
    }
    return loads;
  }

  static void finish(FunctionScope& scope) { scope.function->slots = static_cast<std::uint16_t>(scope.slots.size()); }

  void resolve(Expr* expr, Symbols& symbols) {
    walk(expr, [&](Expr& node) {
      if (node.kind == ExprKind::name) node.place = place_of(node.text, symbols);
      if (node.kind == ExprKind::member) node.place = place_of(node.space, symbols);
    });
  }

  void resolve(const std::vector<Stmt*>& body, Symbols& symbols) {
    for (Stmt* stmt : body) resolve(*stmt, symbols);
  }

  void resolve(Stmt& stmt, Symbols& symbols) {
    switch (stmt.kind) {
      case StmtKind::loop:
        return resolve_loop(stmt, symbols);
      case StmtKind::macro:
        resolve(stmt.target, symbols);
        return resolve_function(*stmt.function, symbols);
      case StmtKind::call:
      case StmtKind::generation:
        resolve(stmt.value, symbols);
        return resolve_function(*stmt.function, symbols);
      case StmtKind::set_block:
        resolve(stmt.target, symbols);
        resolve_inner(stmt, symbols, stmt.value);
        return;
      case StmtKind::filter:
        return resolve_inner(stmt, symbols, stmt.value);
      case StmtKind::with: {
        for (Expr* item : stmt.items) resolve(item, symbols);
        Symbols inner{&symbols, symbols.function, symbols.level + 1, {}, {}};
        for (Expr* target : stmt.targets) note(target, inner);
        note(stmt.body, inner);
        for (Expr* target : stmt.targets) resolve(target, inner);
        resolve(stmt.body, inner);
        stmt.loads = loads_of(inner);
        return;
      }
      default:
        resolve(stmt.target, symbols);
        resolve(stmt.value, symbols);
        for (Expr* item : stmt.items) resolve(item, symbols);
        for (Branch& branch : stmt.branches) {
          resolve(branch.test, symbols);
          resolve(branch.body, symbols);
        }
    }
  }

  void resolve_inner(Stmt& stmt, Symbols& symbols, Expr* filter) {
    Symbols inner{&symbols, symbols.function, symbols.level + 1, {}, {}};
    note(stmt.body, inner);
    note(filter, inner);
    resolve(stmt.body, inner);
    resolve(filter, inner);
    stmt.loads = loads_of(inner);
  }

  void resolve_function(Function& function, Symbols& symbols) {
    FunctionScope scope{symbols.function, &function, {}};
    Symbols inner{&symbols, &scope, symbols.level + 1, {}, {}};
    for (Expr* param : function.params) note(param, inner);
    for (Expr* value : function.defaults) note(value, inner);
    note(function.body, inner);
    const std::set<std::string> special = find_undeclared(function.body, {"caller", "kwargs", "varargs"});
    const auto explicit_at = [&](std::string_view name) {
      std::size_t i = 0;
      while (i < function.params.size() && function.params[i]->text != name) ++i;
      return i;
    };
    if (special.count("caller") > 0) {
      const std::size_t at = explicit_at("caller");
      if (at < function.params.size() && at + function.defaults.size() < function.params.size())
        fail("{}:{}: the parameter 'caller' needs a default", name_, function.params[at]->line);
      function.takes_caller = true;
      if (at == function.params.size()) inner.declare("caller");
    }
    const auto takes = [&](const char* name) {
      const bool is_taken = special.count(name) > 0 && explicit_at(name) == function.params.size();
      if (is_taken) inner.declare(name);
      return is_taken;
    };
    function.takes_kwargs = takes("kwargs");
    function.takes_varargs = takes("varargs");
    for (Expr* param : function.params) resolve(param, inner);
    for (Expr* value : function.defaults) resolve(value, inner);
    resolve(function.body, inner);
    if (function.takes_caller) function.caller = slot_of(inner, "caller");
    if (function.takes_kwargs) function.kwargs = slot_of(inner, "kwargs");
    if (function.takes_varargs) function.varargs = slot_of(inner, "varargs");
    function.loads = loads_of(inner);
    finish(scope);
  }

  void resolve_loop(Stmt& stmt, Symbols& symbols) {
    check_loop_names(stmt);
    resolve(stmt.value, symbols);
    stmt.extended = stmt.recursive || !find_undeclared(stmt.body, {"loop"}).empty();
    if (stmt.test != nullptr) {
      stmt.filter = &tree_.functions.emplace_back();
      FunctionScope scope{symbols.function, stmt.filter, {}};
      Symbols inner{&symbols, &scope, symbols.level + 1, {}, {}};
      note(stmt.target, inner);
      note(stmt.test, inner);
      stmt.filter_target = copy_target(*stmt.target);
      resolve(stmt.filter_target, inner);
      resolve(stmt.test, inner);
      stmt.filter->loads = loads_of(inner);
      finish(scope);
    }
    FunctionScope own{symbols.function, nullptr, {}};
    FunctionScope* scope = symbols.function;
    if (stmt.recursive) {
      stmt.function = &tree_.functions.emplace_back();
      own.function = stmt.function;
      scope = &own;
    }
    Symbols inner{&symbols, scope, symbols.level + 1, {}, {}};
    if (stmt.extended) inner.declare("loop");
    note(stmt.target, inner);
    note(stmt.body, inner);
    resolve(stmt.target, inner);
    if (stmt.extended) stmt.loop_place = place_of("loop", inner);
    resolve(stmt.body, inner);
    stmt.loads = loads_of(inner);
    Symbols other{&symbols, scope, symbols.level + 1, {}, {}};
    note(stmt.other, other);
    resolve(stmt.other, other);
    stmt.other_loads = loads_of(other);
    if (stmt.recursive) finish(own);
  }

  void check_loop_names(Stmt& stmt) {
    walk(std::vector<Stmt*>{&stmt}, [&](Expr& expr) {
      if (expr.kind == ExprKind::name && expr.store && expr.text == "loop")
        fail("{}:{}: 'loop' cannot be set inside a loop", name_, expr.line);
    });
  }

  Expr* copy_target(const Expr& target) {
    Expr& copy = tree_.exprs.emplace_back(target);
    for (Expr*& item : copy.items) item = copy_target(*item);
    return &copy;
  }

  Tree& tree_;
  const std::string& name_;
  std::map<std::string, std::uint16_t> variables_;
  std::size_t copies_ = 0;
};

}  // namespace

void resolve_names(Tree& tree, const std::string& name) {
  Resolver(tree, name).run();
}

}  // namespace qft::jinja
