// Runs statements, macros and loops.
#include "interpreter.h"

namespace qft::jinja {
namespace {

/// Yields the items that pass the `if` of a loop. The test has its own slots, because a loop may look one item ahead.
class Filtered final : public IteratorObject {
 public:
  Filtered(Runtime& rt, const Stmt& stmt, Value source, Scope* outer)
      : stmt_(stmt), cursor_(rt, std::move(source)), slots_(rt.make<Scope>(0, stmt.filter->slots, outer)) {
    std::string none;
    Interpreter(rt, slots_.get(), none).enter(stmt.filter->loads);
  }
  void clear() override {
    cursor_ = Cursor(*rt, Value::undefined(UndefinedReason::name, {}));
    slots_.reset();
  }
  bool next(Runtime& runtime, Value& out) override {
    std::string none;
    Interpreter interpreter(runtime, slots_.get(), none);
    for (Value item; cursor_.next(runtime, item);) {
      interpreter.assign(*stmt_.filter_target, item);
      if (!truth(runtime, interpreter.eval(*stmt_.test))) continue;
      out = std::move(item);
      return true;
    }
    return false;
  }

 private:
  const Stmt& stmt_;
  Cursor cursor_;
  ScopeRef slots_;
};

}  // namespace

void Interpreter::output(const Value& value) {
  append_text(rt_, value, *out_);
  rt_.check_output(out_->size());
}

void Interpreter::enter(const std::vector<Load>& loads) {
  for (const Load& load : loads) {
    Value& to = scope_->slots[load.slot];
    if (load.action == Load::resolve)
      to = rt_.variables[load.variable];
    else if (load.action == Load::alias)
      to = slot(load.from);
    else
      to = Value();
  }
}

void Interpreter::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::name) {
    slot(target.place) = value;
    return;
  }
  if (target.kind == ExprKind::member) {
    const Value& space = slot(target.place);
    if (!space.is(Kind::space)) rt_.fail("'{}' is not a namespace: its attribute cannot be set", target.space);
    if (target.text.starts_with('_')) rt_.fail("the attribute '{}' of a namespace begins with an underscore", target.text);
    dict_set(rt_, space.as<NamespaceObject>().members.as<DictObject>(), Value::view(target.text), value);
    return;
  }
  const std::vector<Value> items = to_items(rt_, value);
  if (items.size() != target.items.size()) rt_.fail("{} values for {} names", items.size(), target.items.size());
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.items[i], items[i]);
}

Flow Interpreter::run(const std::vector<Stmt*>& body) {
  for (const Stmt* stmt : body)
    if (const Flow flow = run(*stmt); flow != Flow::normal) return flow;
  return Flow::normal;
}

Flow Interpreter::run(const Stmt& stmt) {
  rt_.step();
  rt_.line = stmt.line;
  switch (stmt.kind) {
    case StmtKind::data:
      out_->append(stmt.text);
      rt_.work(stmt.text.size());
      rt_.check_output(out_->size());
      return Flow::normal;
    case StmtKind::output:
      for (const Expr* item : stmt.items) output(eval(*item));
      return Flow::normal;
    case StmtKind::set: {
      const Value value = eval(*stmt.value);
      rt_.line = stmt.line;
      check_namespaces(*stmt.target);
      assign(*stmt.target, value);
      return Flow::normal;
    }
    case StmtKind::condition:
      return run_condition(stmt);
    case StmtKind::break_loop:
      return Flow::break_loop;
    case StmtKind::continue_loop:
      return Flow::continue_loop;
    default:
      break;
  }
  const Nested nested(rt_);
  switch (stmt.kind) {
    case StmtKind::loop: {
      Value items = eval(*stmt.value);
      rt_.line = stmt.line;
      if (!stmt.recursive) return run_loop(stmt, std::move(items), 0);
      const ScopeRef slots(rt_.make<Scope>(0, stmt.function->slots, scope_));
      std::string text;
      Interpreter(rt_, slots.get(), text).run_loop(stmt, std::move(items), 0);
      output(rt_.text(std::move(text)));
      return Flow::normal;
    }
    case StmtKind::set_block:
    case StmtKind::filter: {
      std::string text;
      enter(stmt.loads);
      if (const Flow flow = run_captured(stmt.body, text); flow != Flow::normal) return flow;
      Value value = rt_.text(std::move(text));
      rt_.line = stmt.line;
      if (stmt.value != nullptr) value = eval_filter(*stmt.value, &value);
      if (stmt.kind == StmtKind::filter)
        output(value);
      else
        assign(*stmt.target, value);
      return Flow::normal;
    }
    case StmtKind::macro:
      slot(stmt.target->place) = make_macro(*stmt.function, false);
      return Flow::normal;
    case StmtKind::call: {
      const Value caller = make_macro(*stmt.function, true);
      output(eval_call(*stmt.value, &caller));
      return Flow::normal;
    }
    case StmtKind::with:
      enter(stmt.loads);
      for (std::size_t i = 0; i < stmt.targets.size(); ++i) assign(*stmt.targets[i], eval(*stmt.items[i]));
      return run(stmt.body);
    default:
      run_generation(stmt);
      return Flow::normal;
  }
}

// Jinja2 checks all namespaces of a statement before it sets any.
void Interpreter::check_namespaces(const Expr& target) {
  if (target.kind == ExprKind::member && !slot(target.place).is(Kind::space))
    rt_.fail("'{}' is not a namespace: its attribute cannot be set", target.space);
  for (const Expr* item : target.items) check_namespaces(*item);
}

Flow Interpreter::run_condition(const Stmt& stmt) {
  const Nested nested(rt_);
  for (const Branch& branch : stmt.branches)
    if (branch.test == nullptr || truth(rt_, eval(*branch.test))) return run(branch.body);
  return Flow::normal;
}

Flow Interpreter::run_captured(const std::vector<Stmt*>& body, std::string& text) {
  std::string* const outer = std::exchange(out_, &text);
  const Flow flow = run(body);
  out_ = outer;
  return flow;
}

Flow Interpreter::run_loop(const Stmt& stmt, Value items, std::size_t depth) {
  Scope* const outer = stmt.recursive ? scope_->parent : scope_;
  if (stmt.test != nullptr) items = Value(rt_.make<Filtered>(0, rt_, stmt, std::move(items), outer));
  bool any = false;
  Flow flow = Flow::normal;
  if (stmt.extended) {
    auto* loop = rt_.make<LoopObject>(0, rt_, std::move(items), stmt.recursive ? &stmt : nullptr, outer, depth);
    const Value holder(loop);
    flow = run_loop_body(stmt, nullptr, loop, any);
  } else {
    Cursor cursor(rt_, std::move(items));
    flow = run_loop_body(stmt, &cursor, nullptr, any);
  }
  if (any || stmt.other.empty()) return flow;
  enter(stmt.other_loads);
  return run(stmt.other);
}

// `any`: some body ran to its end. If every body left early, Jinja2 treats the loop as one without items.
Flow Interpreter::run_loop_body(const Stmt& stmt, Cursor* cursor, LoopObject* loop, bool& any) {
  Value item;
  while (loop != nullptr ? loop->next(rt_, item) : cursor->next(rt_, item)) {
    rt_.line = stmt.line;
    assign(*stmt.target, item);
    if (loop != nullptr) slot(stmt.loop_place) = Value(loop);
    enter(stmt.loads);
    const Flow flow = run(stmt.body);
    if (flow == Flow::break_loop) break;
    if (flow == Flow::normal) any = true;
    rt_.line = stmt.line;
  }
  return Flow::normal;
}

Value Interpreter::make_macro(const Function& function, bool is_call_block) {
  auto* macro = rt_.make<MacroObject>(0, function, scope_);
  macro->is_call_block = is_call_block;
  return Value(macro);
}

void Interpreter::run_generation(const Stmt& stmt) {
  const std::size_t begin = rt_.out.size();
  const ScopeRef slots(rt_.make<Scope>(0, stmt.function->slots, scope_));
  Interpreter inner(rt_, slots.get(), *out_);
  inner.enter(stmt.function->loads);
  inner.run(stmt.function->body);
  if (stmt.tracked) rt_.generated.push_back({begin, rt_.out.size()});
}

Value call_macro(Runtime& rt, MacroObject& macro, CallArgs& args) {
  const Nested nested(rt);
  const Function& function = macro.function;
  const int line = rt.line;
  const ScopeRef slots(rt.make<Scope>(function.slots * sizeof(Value), function.slots, macro.scope.get()));
  std::string text;
  Interpreter interpreter(rt, slots.get(), text);
  const auto take = [&](std::string_view name) {
    Value value;
    for (std::size_t i = 0; i < args.named.size(); ++i) {
      if (args.named[i].first.as_text() != name) continue;
      value = std::move(args.named[i].second);
      args.named.erase(args.named.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    return value;
  };
  const std::size_t count = function.params.size();
  bool has_caller = false;
  for (std::size_t i = 0; i < count; ++i) {
    const Expr& param = *function.params[i];
    has_caller = has_caller || param.text == "caller";
    interpreter.slot(param.place) = i < args.positional.size() ? args.positional[i] : take(param.text);
  }
  if (function.takes_caller && !has_caller) {
    Value caller = take("caller");
    if (caller.is(Kind::missing) || caller.is(Kind::none)) caller = Value::undefined(UndefinedReason::hint, "there is no caller");
    slots.get()->slots[function.caller] = std::move(caller);
  }
  if (function.takes_kwargs) {
    auto* dict = rt.make<DictObject>(0);
    slots.get()->slots[function.kwargs] = Value(dict);
    for (auto& [name, value] : args.named) dict_set(rt, *dict, name, std::move(value));
  } else if (!args.named.empty()) {
    rt.fail("the macro '{}' has no parameter '{}'", function.name, args.named[0].first.as_text());
  }
  if (function.takes_varargs) {
    std::vector<Value> rest;
    for (std::size_t i = count; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
    slots.get()->slots[function.varargs] = rt.tuple(std::move(rest));
  } else if (args.positional.size() > count) {
    rt.fail("the macro '{}' takes {} arguments, not {}", function.name, count, args.positional.size());
  }
  interpreter.enter(function.loads);
  const std::size_t without = count - function.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    Value& value = interpreter.slot(function.params[i]->place);
    if (!value.is(Kind::missing)) continue;
    if (i >= without) {
      Value given = interpreter.eval(*function.defaults[i - without]);
      interpreter.slot(function.params[i]->place) = std::move(given);
    } else {
      value = Value::undefined(UndefinedReason::name, function.params[i]->text);
    }
  }
  interpreter.run(function.body);
  rt.line = line;
  return rt.text(std::move(text));
}

Value call_loop(Runtime& rt, LoopObject& loop, const Value& items) {
  const Nested nested(rt);
  if (loop.body == nullptr) rt.fail("'loop' is called, but the loop is not 'recursive'");
  const int line = rt.line;
  const ScopeRef slots(rt.make<Scope>(0, loop.body->function->slots, loop.scope.get()));
  std::string text;
  Interpreter(rt, slots.get(), text).run_loop(*loop.body, items, loop.depth0 + 1);
  rt.line = line;
  return rt.text(std::move(text));
}

void run_template(Runtime& rt) {
  const Function& root = *rt.tree().root;
  const ScopeRef slots(rt.make<Scope>(root.slots * sizeof(Value), root.slots, nullptr));
  Interpreter interpreter(rt, slots.get(), rt.out);
  interpreter.enter(root.loads);
  interpreter.run(root.body);
}

}  // namespace qft::jinja
