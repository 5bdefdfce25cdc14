// Filters that return texts.
#include <algorithm>
#include <cmath>

#include "filters.h"
#include "unicode.h"

namespace qft::jinja::filters {
namespace {

Value like(Runtime& rt, const Value& self, std::string text) {
  return rt.text(std::move(text)).as_markup(self.is_markup());
}

// soft_str(): a text keeps its markup flag.
Value soft(Runtime& rt, const Value& value) {
  return value.is_text() ? value : to_text(rt, value);
}

void need_text(Runtime& rt, const Value& value, std::string_view filter) {
  refuse_undefined(rt, value);
  if (!value.is_text()) rt.fail("{}: found {}, expected a text", filter, object_name(value));
  if (value.is_markup()) rt.fail("{}: not implemented for a text that is marked as safe", filter);
}

std::string quote_url(Runtime& rt, const Value& value, bool query) {
  const Value text = to_text(rt, value);
  std::string out;
  for (const char c : text.as_text()) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query))
      out += c;
    else if (c == ' ' && query)
      out += '+';
    else
      out += fmt::format("%{:02X}", static_cast<unsigned>(byte));
  }
  return out;
}

}  // namespace

Value capitalize_filter(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "capitalize", args, {});
  const Value text = soft(rt, self);
  return like(rt, text, capitalize(text.as_text()));
}

Value lower(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "lower", args, {});
  const Value text = soft(rt, self);
  return like(rt, text, change_case(text.as_text(), Case::lower));
}

Value upper(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "upper", args, {});
  const Value text = soft(rt, self);
  return like(rt, text, change_case(text.as_text(), Case::upper));
}

Value title(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "title", args, {});
  const Value whole = soft(rt, self);
  const std::string_view text = whole.as_text();
  std::string out;
  // Words begin after blank space and - ( { [ <.
  for (std::size_t at = 0; at < text.size();) {
    const auto separates = [&](std::size_t from) {
      std::size_t next = from;
      const char32_t c = next_char(text, next);
      return has_flag(c, kSpace) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
    };
    const bool separator = separates(at);
    std::size_t begin = at;
    while (at < text.size() && separates(at) == separator) next_char(text, at);
    const std::string_view word = text.substr(begin, at - begin);
    std::size_t head = 0;
    next_char(word, head);
    out += change_case(word.substr(0, head), Case::upper);
    out += change_case(word.substr(head), Case::lower);
  }
  return rt.text(std::move(out));
}

Value center(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "center", args, {"width"});
  const Value text = soft(rt, self);
  return like(rt, text, pad_text(rt, text.as_text(), bound.integer(0, 80), " ", 0));
}

Value trim(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "trim", args, {"chars"});
  const Value text = soft(rt, self);
  rt.work(text.as_text().size());
  if (!bound.has(0)) {
    const std::string_view stripped = strip(text.as_text(), nullptr, true, true);
    return stripped.size() == text.as_text().size() ? text : like(rt, text, std::string(stripped));
  }
  const std::string_view chars = bound.text(0);
  rt.work(text.as_text().size() * chars.size());
  return like(rt, text, std::string(strip(text.as_text(), &chars, true, true)));
}

Value string(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "string", args, {});
  return soft(rt, self);
}

Value safe(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "safe", args, {});
  return to_text(rt, self).as_markup();
}

Value escape(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "escape", args, {});
  return self.is_markup() ? self : rt.text(escape_html(to_text(rt, self).as_text())).as_markup();
}

Value forceescape(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "forceescape", args, {});
  return rt.text(escape_html(to_text(rt, self).as_text())).as_markup();
}

Value replace(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "replace", args, {"old", "new", "count"}, 2);
  const Value text = to_text(rt, self), old = to_text(rt, *bound[0]), with = to_text(rt, *bound[1]);
  return replace_text(rt, text.as_text(), old.as_text(), with.as_text(), bound.has(2) ? bound.integer(2, -1) : -1);
}

Value format(Runtime& rt, const Value& self, CallArgs& args) {
  if (!args.positional.empty() && !args.named.empty()) rt.fail("format: both values and named values");
  const Value text = soft(rt, self);
  if (args.named.empty()) return format_percent(rt, text, rt.tuple(std::move(args.positional)));
  return format_percent(rt, text, make_dict(rt, args));
}

Value indent(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "indent", args, {"width", "first", "blank"});
  need_text(rt, self, "indent");
  std::string by;
  constexpr std::int64_t kMaxIndent = 100'000;
  if (bound[0] != nullptr && bound[0]->is_text())
    by = bound[0]->as_text();
  else if (bound.integer(0, 4) > kMaxIndent)
    rt.fail("indent: {} characters; the limit is {}", bound.integer(0, 4), kMaxIndent);
  else
    by = std::string(static_cast<std::size_t>(std::max<std::int64_t>(bound.integer(0, 4), 0)), ' ');
  const std::string_view text = self.as_text();
  std::string out = bound.flag(1) ? by : "";
  // The extra line end turns a line end at the text's end into a last, blank line.
  const std::string all = std::string(text) + "\n";
  for (std::size_t at = 0; at < all.size();) {
    const Line line = next_line(all, at);
    if (at > 0) {
      out += '\n';
      if (bound.flag(2) || line.end > at) out += by;
    }
    out += std::string_view(all).substr(at, line.end - at);
    rt.check_memory(out.size());
    at = line.next;
  }
  return rt.text(std::move(out));
}

Value truncate(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "truncate", args, {"length", "killwords", "end", "leeway"});
  const std::string_view end = bound[2] != nullptr ? bound.text(2) : "...";
  const std::int64_t most = bound.integer(0, 255), leeway = bound.has(3) ? bound.integer(3, 0) : 5;
  const auto tail = static_cast<std::int64_t>(char_count(end));
  if (most < tail || leeway < 0)
    rt.fail("truncate: a length of {} with an end of {} characters, or a leeway of {}", most, tail, leeway);
  const std::optional<std::size_t> size = length(rt, self);
  if (!size) rt.fail("truncate: {} has no length", object_name(self));
  if (static_cast<std::int64_t>(*size) <= most + leeway) return self;
  need_text(rt, self, "truncate");
  const std::string_view text = self.as_text();
  std::string_view kept = char_slice(text, 0, static_cast<std::size_t>(most - tail));
  if (!bound.flag(1)) kept = kept.substr(0, kept.rfind(' '));
  return rt.text(std::string(kept).append(end));
}

Value wordcount(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "wordcount", args, {});
  const Value whole = soft(rt, self);
  const std::string_view text = whole.as_text();
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, at);
    const bool letter = c == '_' || has_flag(c, kAlpha | kDecimal | kDigit | kNumeric);
    words += letter && !inside ? 1 : 0;
    inside = letter;
  }
  return Value::integer(words);
}

Value striptags(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "striptags", args, {});
  std::string text(to_text(rt, self).as_text());
  rt.work(text.size());
  for (std::size_t begin = text.find("<!--"), end; begin != text.npos; begin = text.find("<!--", begin)) {
    if ((end = text.find("-->", begin)) == text.npos) break;
    rt.work(text.size());
    text.erase(begin, end + 3 - begin);
  }
  for (std::size_t begin = text.find('<'), end; begin != text.npos; begin = text.find('<', begin)) {
    if ((end = text.find('>', begin)) == text.npos) break;
    rt.work(text.size());
    text.erase(begin, end + 1 - begin);
  }
  if (text.find('&') != text.npos) rt.fail("striptags: not implemented for a text with '&'");
  std::string out;
  for (std::string_view rest = strip(text, nullptr, true, true); !rest.empty(); rest = strip(rest, nullptr, true, false)) {
    std::size_t end = 0;
    for (std::size_t at = 0; at < rest.size(); end = at)
      if (has_flag(next_char(rest, at), kSpace)) break;
    if (!out.empty()) out += ' ';
    out += rest.substr(0, end);
    rest.remove_prefix(end);
  }
  return rt.text(std::move(out));
}

Value urlencode(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "urlencode", args, {});
  const bool iterable = self.is_dict() || is_sequence(self) || self.is(Kind::range) || self.is(Kind::view) ||
                        self.is(Kind::iterator) || self.is_undefined() || self.is(Kind::loop);
  if (!iterable) return rt.text(quote_url(rt, self, false));
  std::string out;
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += quote_url(rt, key, true) + "=" + quote_url(rt, value, true);
  };
  if (self.is_dict()) {
    for (std::size_t i = 0; i < dict_size(self); ++i) {
      const auto [key, value] = dict_at(rt, self, i);
      add(key, value);
    }
    return rt.text(std::move(out));
  }
  Cursor cursor(rt, self);
  for (Value pair; cursor.next(rt, pair);) {
    const std::vector<Value> two = to_items(rt, pair);
    if (two.size() != 2) rt.fail("urlencode: an item of {} values, expected 2", two.size());
    add(two[0], two[1]);
  }
  return rt.text(std::move(out));
}

Value xmlattr(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "xmlattr", args, {"autospace"});
  refuse_undefined(rt, self);
  if (!self.is_dict()) rt.fail("xmlattr: found {}, expected a dict", object_name(self));
  std::string out;
  for (std::size_t i = 0; i < dict_size(self); ++i) {
    const auto [key, value] = dict_at(rt, self, i);
    if (value.is(Kind::none) || value.is_undefined()) continue;
    if (!key.is_text()) rt.fail("xmlattr: a key is {}, expected a text", object_name(key));
    if (key.as_text().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos)
      rt.fail("xmlattr: '{}' cannot be an attribute's name", key.as_text());
    const auto escaped = [&](const Value& part) {
      return part.is_markup() ? std::string(part.as_text()) : escape_html(to_text(rt, part).as_text());
    };
    if (!out.empty() || bound.flag(0, true)) out += ' ';
    out += escaped(key) + "=\"" + escaped(value) + "\"";
  }
  return rt.text(std::move(out));
}

Value filesizeformat(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "filesizeformat", args, {"binary"});
  const std::optional<double> given = to_real(rt, self);
  if (!given) rt.fail("filesizeformat: found {}, expected a number", object_name(self));
  const bool binary = bound.flag(0);
  const double base = binary ? 1024 : 1000, bytes = *given;
  if (bytes == 1) return Value::view("1 Byte");
  if (std::isnan(bytes)) rt.fail("filesizeformat: no number");
  if (bytes < base) {
    if (std::isinf(bytes)) rt.fail("filesizeformat: an infinite number");
    return rt.text(fmt::format("{:.0f} Bytes", std::trunc(bytes) == 0 ? 0.0 : std::trunc(bytes)));
  }
  static constexpr std::string_view kLetters = "kMGTPEZY";
  double unit = base * base;
  std::size_t i = 0;
  for (; i + 1 < kLetters.size() && bytes >= unit; ++i) unit *= base;
  const std::string prefix = binary ? std::string(1, i == 0 ? 'K' : kLetters[i]) + "iB" : std::string(1, kLetters[i]) + "B";
  return rt.text(fmt::format("{:.1f} {}", base * bytes / unit, prefix));
}

Value tojson(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  const Value none = Value::none();
  return rt.text(dump_value(rt, self, bound.flag(0), bound.value(1, none), bound.value(2, none), bound.flag(3)));
}

// Prints on one line; refuses values that Python's pprint would break into lines.
Value pprint(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "pprint", args, {});
  std::string text;
  append_repr(rt, self, text);
  constexpr std::size_t kLine = 80;
  if (char_count(text) > kLine || self.is_dict() || text.find('{') != text.npos)
    rt.fail("pprint: not implemented for dicts and for more than {} characters", kLine);
  return rt.text(std::move(text));
}

Value wordwrap(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "wordwrap", args, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  need_text(rt, self, "wordwrap");
  rt.fail("wordwrap is not implemented");
}

}  // namespace qft::jinja::filters
