// str(), repr() and json.dumps() for values.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime.h"
#include "unicode.h"

namespace qft::jinja {
namespace {

constexpr std::size_t kMaxPrintedDigits = 4300;  // Python's limit

// Tracks the containers being printed, to cut cycles short as Python does.
class Printing {
 public:
  Printing(std::vector<const Object*>& open, const Object* object) : open_(open) {
    is_cycle_ = std::find(open.begin(), open.end(), object) != open.end();
    open_.push_back(object);
  }
  ~Printing() { open_.pop_back(); }
  Printing(const Printing&) = delete;
  Printing& operator=(const Printing&) = delete;
  bool is_cycle() const { return is_cycle_; }

 private:
  std::vector<const Object*>& open_;
  bool is_cycle_;
};

class Printer {
 public:
  Printer(Runtime& rt, std::string& out) : rt_(rt), out_(out) {}

  void repr(const Value& value) {
    rt_.step();
    rt_.check_output(out_.size());
    rt_.check_memory(out_.size());
    switch (value.kind()) {
      case Kind::missing:
      case Kind::undefined:
        out_ += "Undefined";
        return;
      case Kind::none:
        out_ += "None";
        return;
      case Kind::boolean:
        out_ += value.as_integer() != 0 ? "True" : "False";
        return;
      case Kind::integer:
        out_ += std::to_string(value.as_integer());
        return;
      case Kind::real:
        out_ += python_repr(value.as_real());
        return;
      case Kind::text:
        return text(value);
      default:
        return object(value);
    }
  }

 private:
  void text(const Value& value) {
    if (value.is_markup()) out_ += "Markup(";
    append_quoted(value.as_text(), out_);
    if (value.is_markup()) out_ += ")";
  }

  void object(const Value& value) {
    const Nested nested(rt_);
    switch (value.kind()) {
      case Kind::big: {
        const std::string digits = value.as<BigObject>().value.to_string();
        if (digits.size() > kMaxPrintedDigits + (digits[0] == '-' ? 1 : 0))
          rt_.fail("an integer of more than {} digits cannot be printed", kMaxPrintedDigits);
        out_ += digits;
        return;
      }
      case Kind::json_list:
      case Kind::list:
        return items(value, "[", "]");
      case Kind::tuple:
        return items(value, "(", list_size(value) == 1 ? ",)" : ")");
      case Kind::json_dict:
      case Kind::dict:
        return dict(value);
      case Kind::space:
        out_ += "<Namespace ";
        dict(value.as<NamespaceObject>().members);
        out_ += ">";
        return;
      case Kind::range: {
        const auto& range = value.as<RangeObject>();
        out_ += fmt::format("range({}, {}", range.start, range.stop);
        out_ += range.step == 1 ? std::string(")") : fmt::format(", {})", range.step);
        return;
      }
      case Kind::view:
        return view(value.as<ViewObject>());
      case Kind::macro:
        out_ += "<Macro ";
        if (value.as<MacroObject>().is_call_block)
          out_ += "anonymous";
        else
          append_quoted(value.as<MacroObject>().function.name, out_);
        out_ += ">";
        return;
      case Kind::loop: {
        auto& loop = value.as<LoopObject>();
        out_ += fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.length(rt_));
        return;
      }
      default:
        rt_.fail("{} has no text: only an address in memory", object_name(value));
    }
  }

  void items(const Value& value, std::string_view open, std::string_view close) {
    const Printing printing(open_, value.is(Kind::json_list) ? nullptr : value.object());
    if (printing.is_cycle() && !value.is(Kind::json_list)) {
      out_ += value.is(Kind::tuple) ? "(...)" : "[...]";
      return;
    }
    out_ += open;
    for (std::size_t i = 0; i < list_size(value); ++i) {
      if (i > 0) out_ += ", ";
      repr(list_at(rt_, value, i));
    }
    out_ += close;
  }

  void dict(const Value& value) {
    const Printing printing(open_, value.is(Kind::json_dict) ? nullptr : value.object());
    if (printing.is_cycle() && !value.is(Kind::json_dict)) {
      out_ += "{...}";
      return;
    }
    out_ += "{";
    for (std::size_t i = 0; i < dict_size(value); ++i) {
      const auto [key, member] = dict_at(rt_, value, i);
      if (i > 0) out_ += ", ";
      repr(key);
      out_ += ": ";
      repr(member);
    }
    out_ += "}";
  }

  void view(const ViewObject& view) {
    out_ += view.of == ViewOf::keys ? "dict_keys([" : view.of == ViewOf::values ? "dict_values([" : "dict_items([";
    for (std::size_t i = 0; i < dict_size(view.dict); ++i) {
      const auto [key, member] = dict_at(rt_, view.dict, i);
      if (i > 0) out_ += ", ";
      if (view.of == ViewOf::items) out_ += "(";
      if (view.of != ViewOf::values) repr(key);
      if (view.of == ViewOf::items) out_ += ", ";
      if (view.of != ViewOf::keys) repr(member);
      if (view.of == ViewOf::items) out_ += ")";
    }
    out_ += "])";
  }

  Runtime& rt_;
  std::string& out_;
  std::vector<const Object*> open_;
};

void append_escape(std::string& out, char32_t c, bool json) {
  if (c < 0x100 && !json)
    out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
  else if (c < 0x10000)
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  else if (json)  // as a surrogate pair
    out += fmt::format("\\u{:04x}\\u{:04x}", static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10)),
                       static_cast<unsigned>(0xDC00 + ((c - 0x10000) & 0x3FF)));
  else
    out += fmt::format("\\U{:08x}", static_cast<unsigned>(c));
}

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, bool ascii, std::optional<std::string> indent, std::string item, std::string key, bool sort)
      : rt_(rt), ascii_(ascii), indent_(std::move(indent)), item_(std::move(item)), key_(std::move(key)), sort_(sort) {}

  std::string take() { return std::move(out_); }

  void write(const Value& value, std::size_t level) {
    rt_.step();
    rt_.check_output(out_.size());
    rt_.check_memory(out_.size());
    switch (value.kind()) {
      case Kind::none:
        out_ += "null";
        return;
      case Kind::boolean:
        out_ += value.as_integer() != 0 ? "true" : "false";
        return;
      case Kind::real:
        out_ += python_float(value.as_real());
        return;
      case Kind::text:
        return text(value.as_text());
      case Kind::integer:
      case Kind::big:
        return append_repr(rt_, value, out_);
      case Kind::json_list:
      case Kind::list:
      case Kind::tuple:
        return list(value, level);
      case Kind::json_dict:
      case Kind::dict:
        return dict(value, level);
      default:
        rt_.fail("tojson: JSON cannot represent {}", value.is_undefined() ? "an undefined value" : object_name(value));
    }
  }

 private:
  void new_line(std::size_t level) {
    if (!indent_) return;
    rt_.check_output(out_.size() + level * indent_->size());
    out_ += '\n';
    for (std::size_t i = 0; i < level; ++i) out_ += *indent_;
  }

  void list(const Value& value, std::size_t level) {
    const Nested nested(rt_);
    const std::size_t count = list_size(value);
    if (count == 0) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out_ += item_;
      new_line(level + 1);
      write(list_at(rt_, value, i), level + 1);
    }
    new_line(level);
    out_ += ']';
  }

  void dict(const Value& value, std::size_t level) {
    const Nested nested(rt_);
    const std::size_t count = dict_size(value);
    if (count == 0) {
      out_ += "{}";
      return;
    }
    std::vector<Value> order;
    for (std::size_t i = 0; i < count; ++i) order.push_back(Value::size(i));
    if (sort_) {
      std::vector<Value> keys;
      for (std::size_t i = 0; i < count; ++i) keys.push_back(dict_at(rt_, value, i).first);
      order = sort_by(rt_, std::move(order), std::move(keys), false);
    }
    out_ += '{';
    for (std::size_t i = 0; i < count; ++i) {
      const auto [key, member] = dict_at(rt_, value, static_cast<std::size_t>(order[i].as_integer()));
      if (i > 0) out_ += item_;
      new_line(level + 1);
      write_key(key);
      out_ += key_;
      write(member, level + 1);
    }
    new_line(level);
    out_ += '}';
  }

  // Writes a key that is not a text as one.
  void write_key(const Value& key) {
    if (key.is_text()) return text(key.as_text());
    if (!key.is_number() && !key.is(Kind::none)) rt_.fail("tojson: JSON cannot have {} as a key", object_name(key));
    out_ += '"';
    write(key, 0);
    out_ += '"';
  }

  void text(std::string_view value) {
    out_ += '"';
    for (std::size_t at = 0; at < value.size();) {
      const std::size_t begin = at;
      const char32_t c = next_char(value, at);
      static constexpr std::string_view kSpecial = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
      const std::size_t letter = c < 0x80 ? kSpecial.find(static_cast<char>(c)) : kSpecial.npos;
      if (letter != kSpecial.npos)
        (out_ += '\\') += kLetters[letter];
      else if (c < 0x20 || (ascii_ && c > 0x7E))
        append_escape(out_, c, true);
      else
        out_.append(value.substr(begin, at - begin));
    }
    out_ += '"';
  }

  Runtime& rt_;
  const bool ascii_;
  const std::optional<std::string> indent_;
  const std::string item_, key_;
  const bool sort_;
  std::string out_;
};

}  // namespace

std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return python_float(value);
}

void append_quoted(std::string_view text, std::string& out) {
  const bool doubled = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = doubled ? '"' : '\'';
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_char(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\')
      (out += '\\') += static_cast<char>(c);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (!has_flag(c, kPrintable))
      append_escape(out, c, false);
    else
      out.append(text.substr(begin, at - begin));
  }
  out += quote;
}

void append_repr(Runtime& rt, const Value& value, std::string& out) {
  Printer(rt, out).repr(value);
}

void append_text(Runtime& rt, const Value& value, std::string& out) {
  if (value.is_text()) {
    rt.work(value.as_text().size());
    rt.check_output(out.size() + value.as_text().size());
    out += value.as_text();
  } else if (!value.is_undefined()) {
    append_repr(rt, value, out);
  }
}

Value to_text(Runtime& rt, const Value& value) {
  if (value.is_text()) return value.as_markup(false);
  std::string out;
  append_text(rt, value, out);
  return rt.text(std::move(out));
}

std::string dump_value(Runtime& rt, const Value& value, bool ascii, const Value& indent, const Value& separators,
                       bool sort_keys) {
  std::optional<std::string> by;
  if (indent.is_text()) {
    by = std::string(indent.as_text());
  } else if (indent.is_integer()) {
    constexpr std::int64_t kMaxIndent = 1000;
    if (indent.as_integer() > kMaxIndent) rt.fail("tojson: an indent of {}; the limit is {}", indent.as_integer(), kMaxIndent);
    by = std::string(static_cast<std::size_t>(std::max<std::int64_t>(indent.as_integer(), 0)), ' ');
  } else if (!indent.is(Kind::none)) {
    rt.fail("tojson: indent is {}, expected a number or a text", object_name(indent));
  }
  std::string item = by ? "," : ", ", key = ": ";
  if (!separators.is(Kind::none)) {
    const std::vector<Value> two = to_items(rt, separators);
    if (two.size() != 2 || !two[0].is_text() || !two[1].is_text()) rt.fail("tojson: separators are not two texts");
    item = two[0].as_text();
    key = two[1].as_text();
  }
  JsonWriter writer(rt, ascii, std::move(by), std::move(item), std::move(key), sort_keys);
  writer.write(value, 0);
  return writer.take();
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    static constexpr std::string_view kSpecial = "&<>'\"";
    static constexpr std::string_view kNames[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (const std::size_t at = kSpecial.find(c); at != kSpecial.npos)
      out += kNames[at];
    else
      out += c;
  }
  return out;
}

std::vector<Value> sort_by(Runtime& rt, std::vector<Value> items, std::vector<Value> keys, bool reverse) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Equal items keep their order even with reverse.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? ordered(rt, keys[b], CompareOp::lt, keys[a]) : ordered(rt, keys[a], CompareOp::lt, keys[b]);
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const std::size_t i : order) sorted.push_back(std::move(items[i]));
  return sorted;
}

}  // namespace qft::jinja
