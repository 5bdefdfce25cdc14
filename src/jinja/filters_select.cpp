// map, select and related filters. They are lazy like Jinja2's, so an item that fails matters only when reached.
#include <optional>
#include <tuple>

#include "filters.h"
#include "methods.h"

namespace qft::jinja::filters {
namespace {

/// Iterates over a source and applies a filter or test with its arguments to each item.
class ItemIterator : public IteratorObject {
 public:
  explicit ItemIterator(const Value& source) : source_(source) {}
  void clear() override {
    source_ = Value();
    cursor_.reset();
    getter_.reset();
    args_ = {};
  }

 protected:
  bool next_item(Runtime& runtime, Value& item) {
    if (!cursor_) cursor_.emplace(runtime, source_);
    return cursor_->next(runtime, item);
  }

  std::optional<Getter> getter_;
  CallArgs args_;

 private:
  Value source_;
  std::optional<Cursor> cursor_;
};

class Mapped final : public ItemIterator {
 public:
  Mapped(Runtime& rt, const Value& source, CallArgs& args) : ItemIterator(source) {
    if (args.positional.empty() && !args.named.empty()) {
      const Bound bound(rt, "map", args, {"attribute", "default"});
      if (bound[0] == nullptr) rt.fail("map: the name of a filter, or an attribute, is missing");
      getter_.emplace(rt, bound[0], bound[1]);
      return;
    }
    if (args.positional.empty()) rt.fail("map: the name of a filter, or an attribute, is missing");
    const Value name = args.positional[0];
    filter_ = name.is_text() ? find_filter(name.as_text()) : nullptr;
    if (name.is_text() && is_unsupported_filter(name.as_text()))
      rt.fail("map: the filter '{}' is not implemented", name.as_text());
    std::string shown;
    append_text(rt, name, shown);
    if (filter_ == nullptr) rt.fail("map: unknown filter '{}'", shown);
    args.positional.erase(args.positional.begin());
    args_ = std::move(args);
  }
  bool next(Runtime& runtime, Value& out) override {
    Value item;
    if (!next_item(runtime, item)) return false;
    if (getter_) {
      out = (*getter_)(runtime, std::move(item));
    } else {
      CallArgs args = args_;
      out = filter_->run(runtime, item, args);
    }
    return true;
  }

 private:
  const FilterRow* filter_ = nullptr;
};

class Selected final : public ItemIterator {
 public:
  Selected(Runtime& rt, const Value& source, CallArgs& args, bool wanted, bool by_attribute)
      : ItemIterator(source), wanted_(wanted) {
    std::size_t used = 0;
    if (by_attribute) {
      if (args.positional.empty()) rt.fail("selectattr or rejectattr: the attribute is missing");
      getter_.emplace(rt, &args.positional[0]);
      used = 1;
    }
    if (args.positional.size() > used) {
      const Value name = args.positional[used++];
      test_ = name.is_text() ? find_test(name.as_text()) : nullptr;
      std::string shown;
      append_text(rt, name, shown);
      if (test_ == nullptr) rt.fail("select or reject: unknown test '{}'", shown);
    }
    args.positional.erase(args.positional.begin(), args.positional.begin() + static_cast<std::ptrdiff_t>(used));
    args_ = std::move(args);
  }
  bool next(Runtime& runtime, Value& out) override {
    for (Value item; next_item(runtime, item);) {
      const Value value = getter_ ? (*getter_)(runtime, item) : item;
      CallArgs args = args_;
      const bool is = test_ != nullptr ? test_->run(runtime, value, args) : truth(runtime, value);
      if (is != wanted_) continue;
      out = std::move(item);
      return true;
    }
    return false;
  }

 private:
  const TestRow* test_ = nullptr;
  const bool wanted_;
};

/// Defers all checks until the first item is requested; an empty list is never checked.
template <class Inner, class... More>
class Lazy final : public IteratorObject {
 public:
  Lazy(Value source, CallArgs args, More... more) : source_(std::move(source)), args_(std::move(args)), more_(more...) {}
  void clear() override {
    source_ = inner_ = Value();
    args_ = {};
  }
  bool next(Runtime& runtime, Value& out) override {
    if (is_empty_) return false;
    if (inner_.is(Kind::missing)) {
      is_empty_ = !truth(runtime, source_);
      if (is_empty_) return false;
      inner_ = std::apply([&](More... more) { return Value(runtime.make<Inner>(0, runtime, source_, args_, more...)); }, more_);
    }
    return inner_.as<IteratorObject>().next(runtime, out);
  }

 private:
  Value source_, inner_;
  CallArgs args_;
  std::tuple<More...> more_;
  bool is_empty_ = false;
};

Value selected(Runtime& rt, const Value& self, CallArgs& args, bool wanted, bool by_attribute) {
  return Value(rt.make<Lazy<Selected, bool, bool>>(0, self, std::move(args), wanted, by_attribute));
}

}  // namespace

Value map(Runtime& rt, const Value& self, CallArgs& args) {
  return Value(rt.make<Lazy<Mapped>>(0, self, std::move(args)));
}
Value select(Runtime& rt, const Value& self, CallArgs& args) {
  return selected(rt, self, args, true, false);
}
Value reject(Runtime& rt, const Value& self, CallArgs& args) {
  return selected(rt, self, args, false, false);
}
Value selectattr(Runtime& rt, const Value& self, CallArgs& args) {
  return selected(rt, self, args, true, true);
}
Value rejectattr(Runtime& rt, const Value& self, CallArgs& args) {
  return selected(rt, self, args, false, true);
}

}  // namespace qft::jinja::filters
