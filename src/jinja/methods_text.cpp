// Methods of texts.
#include <algorithm>

#include "methods.h"
#include "unicode.h"

namespace qft::jinja {
namespace {

void refuse_markup(Runtime& rt, const Value& self, std::string_view method) {
  if (self.is_markup()) rt.fail("'{}' of a text that is marked as safe is not implemented", method);
}

// Keeps the markup flag of the original text.
Value like(Runtime& rt, const Value& self, std::string text) {
  return rt.text(std::move(text)).as_markup(self.is_markup());
}

Value part(Runtime& rt, std::string_view text) {
  return rt.text(std::string(text));
}

std::string_view text_of(Runtime& rt, const Value& value, std::string_view method) {
  refuse_undefined(rt, value);
  if (!value.is_text()) rt.fail("'{}' needs a text, not {}", method, object_name(value));
  return value.as_text();
}

/// Part of a text between two character indices, as in find() and similar methods.
struct Window {
  std::string_view text;
  std::size_t before = 0;  // characters
  bool valid = true;       // false if the begin is past the end: then even "" is not found
};

Window window_of(const Bound& args, std::string_view text, std::size_t first) {
  if (!args.has(first) && !args.has(first + 1)) return {text};
  const auto size = static_cast<std::int64_t>(char_count(text));
  const auto place = [&](std::size_t i, std::int64_t fallback) {
    if (!args.has(i)) return fallback;
    const std::int64_t at = args.integer(i, 0);
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
  };
  const std::int64_t begin = place(first, 0), end = std::min(place(first + 1, size), size);
  if (begin > end) return {{}, 0, false};
  return {char_slice(text, static_cast<std::size_t>(begin), static_cast<std::size_t>(end)), static_cast<std::size_t>(begin)};
}

template <Case to>
Value cased(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "upper(), lower(), title() or swapcase()", args, {});
  rt.work(self.as_text().size() * 8);
  return like(rt, self, change_case(self.as_text(), to));
}

Value capitalize_text(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "capitalize()", args, {});
  return like(rt, self, capitalize(self.as_text()));
}

Value casefold(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "casefold()", args, {});
  return like(rt, self, fold_case(self.as_text()));
}

template <bool left, bool right>
Value stripped(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "strip()", args, {"chars"}, 0, true);
  const std::string_view text = self.as_text();
  rt.work(text.size());
  if (!bound.has(0)) return like(rt, self, std::string(strip(text, nullptr, left, right)));
  const std::string_view chars = bound.text(0);
  rt.work(text.size() * chars.size());
  return like(rt, self, std::string(strip(text, &chars, left, right)));
}

template <bool at_end>
Value has_affix(Runtime& rt, const Value& self, CallArgs& args) {
  constexpr std::string_view kName = at_end ? "endswith()" : "startswith()";
  const Bound bound(rt, kName, args, {"affix", "start", "end"}, 1, true);
  const Window window = window_of(bound, self.as_text(), 1);
  const auto has = [&](const Value& affix) {
    const std::string_view text = text_of(rt, affix, kName);
    return window.valid && (at_end ? window.text.ends_with(text) : window.text.starts_with(text));
  };
  if (!bound[0]->is(Kind::tuple)) return Value::boolean(has(*bound[0]));
  for (const Value& affix : bound[0]->as<ListObject>().items)
    if (has(affix)) return Value::boolean(true);
  return Value::boolean(false);
}

// Returns the character index of the match; -1 if there is none.
template <bool last>
std::int64_t find_text(Runtime& rt, const Value& self, CallArgs& args, std::string_view name) {
  const Bound bound(rt, name, args, {"sub", "start", "end"}, 1, true);
  const Window window = window_of(bound, self.as_text(), 1);
  const std::string_view wanted = text_of(rt, *bound[0], name);
  rt.work(window.text.size());
  if (!window.valid) return -1;
  const std::size_t at = last ? window.text.rfind(wanted) : window.text.find(wanted);
  return at == window.text.npos ? -1 : static_cast<std::int64_t>(window.before + char_count(window.text.substr(0, at)));
}

template <bool last>
Value find(Runtime& rt, const Value& self, CallArgs& args) {
  return Value::integer(find_text<last>(rt, self, args, "find()"));
}

template <bool last>
Value index(Runtime& rt, const Value& self, CallArgs& args) {
  const std::int64_t at = find_text<last>(rt, self, args, "index()");
  if (at < 0) rt.fail("index(): the text is not found");
  return Value::integer(at);
}

Value count(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "count()", args, {"sub", "start", "end"}, 1, true);
  const Window window = window_of(bound, self.as_text(), 1);
  const std::string_view wanted = text_of(rt, *bound[0], "count()");
  rt.work(window.text.size());
  if (!window.valid) return Value::integer(0);
  if (wanted.empty()) return Value::size(char_count(window.text) + 1);
  std::int64_t found = 0;
  for (std::size_t at = window.text.find(wanted); at != window.text.npos; at = window.text.find(wanted, at + wanted.size()))
    ++found;
  return Value::integer(found);
}

Value replace(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "replace()", args, {"old", "new", "count"}, 2, true);
  refuse_markup(rt, self, "replace()");
  return replace_text(rt, self.as_text(), text_of(rt, *bound[0], "replace()"), text_of(rt, *bound[1], "replace()"),
                      bound.integer(2, -1));
}

Value split(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "split()", args, {"sep", "maxsplit"});
  refuse_markup(rt, self, "split()");
  const std::int64_t most = bound.integer(1, -1);
  std::string_view text = self.as_text();
  rt.work(text.size());
  std::vector<Value> parts;
  if (!bound.has(0)) {
    for (text = strip(text, nullptr, true, false); !text.empty(); text = strip(text, nullptr, true, false)) {
      std::size_t end = 0;
      const bool rest = most >= 0 && static_cast<std::int64_t>(parts.size()) >= most;
      for (std::size_t at = 0; !rest && at < text.size(); end = at)
        if (has_flag(next_char(text, at), kSpace)) break;
      if (rest) end = text.size();
      parts.push_back(part(rt, text.substr(0, end)));
      text.remove_prefix(end);
    }
    return rt.list(std::move(parts));
  }
  const std::string_view by = bound.text(0);
  if (by.empty()) rt.fail("split() by an empty text");
  for (std::size_t at; (at = text.find(by)) != text.npos && (most < 0 || static_cast<std::int64_t>(parts.size()) < most);) {
    parts.push_back(part(rt, text.substr(0, at)));
    text.remove_prefix(at + by.size());
  }
  parts.push_back(part(rt, text));
  return rt.list(std::move(parts));
}

Value rsplit(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "rsplit()", args, {"sep", "maxsplit"});
  refuse_markup(rt, self, "rsplit()");
  const std::int64_t most = bound.integer(1, -1);
  std::string_view text = self.as_text();
  rt.work(text.size());
  std::vector<Value> parts;
  if (!bound.has(0)) {
    for (text = strip(text, nullptr, false, true); !text.empty(); text = strip(text, nullptr, false, true)) {
      std::size_t begin = text.size();
      const bool rest = most >= 0 && static_cast<std::int64_t>(parts.size()) >= most;
      while (!rest && begin > 0) {
        std::size_t start = begin - 1;
        while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
        std::size_t at = start;
        if (has_flag(next_char(text, at), kSpace)) break;
        begin = start;
      }
      if (rest) begin = 0;
      parts.push_back(part(rt, text.substr(begin)));
      text = text.substr(0, begin);
    }
  } else {
    const std::string_view by = bound.text(0);
    if (by.empty()) rt.fail("rsplit() by an empty text");
    for (std::size_t at; (at = text.rfind(by)) != text.npos && (most < 0 || static_cast<std::int64_t>(parts.size()) < most);) {
      parts.push_back(part(rt, text.substr(at + by.size())));
      text = text.substr(0, at);
    }
    parts.push_back(part(rt, text));
  }
  std::reverse(parts.begin(), parts.end());
  return rt.list(std::move(parts));
}

Value splitlines(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "splitlines()", args, {"keepends"});
  refuse_markup(rt, self, "splitlines()");
  const std::string_view text = self.as_text();
  std::vector<Value> lines;
  for (std::size_t at = 0; at < text.size();) {
    const Line line = next_line(text, at);
    lines.push_back(part(rt, text.substr(at, (bound.flag(0) ? line.next : line.end) - at)));
    at = line.next;
  }
  return rt.list(std::move(lines));
}

template <bool last>
Value partition(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "partition()", args, {"sep"}, 1, true);
  refuse_markup(rt, self, "partition()");
  const std::string_view text = self.as_text(), by = text_of(rt, *bound[0], "partition()");
  if (by.empty()) rt.fail("partition() by an empty text");
  const std::size_t at = last ? text.rfind(by) : text.find(by);
  const Value none = Value::view({});
  if (at == text.npos) return last ? rt.tuple({none, none, self}) : rt.tuple({self, none, none});
  return rt.tuple({part(rt, text.substr(0, at)), part(rt, by), part(rt, text.substr(at + by.size()))});
}

template <bool at_end>
Value remove_affix(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "removeprefix() or removesuffix()", args, {"affix"}, 1, true);
  std::string_view text = self.as_text();
  const std::string_view affix = text_of(rt, *bound[0], "removeprefix() or removesuffix()");
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return like(rt, self, std::string(text));
}

Value join(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "join()", args, {"iterable"}, 1, true);
  refuse_markup(rt, self, "join()");
  std::string text;
  Cursor cursor(rt, *bound[0]);
  bool first = true;
  for (Value item; cursor.next(rt, item); first = false) {
    if (!item.is_text()) rt.fail("join(): an item is {}, expected a text", object_name(item));
    if (!first) text += self.as_text();
    append_text(rt, item, text);
    rt.check_memory(text.size());
  }
  return rt.text(std::move(text));
}

// `side`: -1 puts the text first, 1 last, 0 in the middle.
template <int side>
Value padded(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "center(), ljust() or rjust()", args, {"width", "fillchar"}, 1, true);
  std::string_view fill = " ";
  if (bound.has(1)) fill = bound.text(1);
  if (char_count(fill) != 1) rt.fail("center(), ljust() or rjust(): '{}' is not one character", fill);
  return like(rt, self, pad_text(rt, self.as_text(), bound.integer(0, 0), fill, side));
}

Value zfill(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "zfill()", args, {"width"}, 1, true);
  std::string_view text = self.as_text();
  const bool sign = text.starts_with('-') || text.starts_with('+');
  const std::string_view head = text.substr(0, sign ? 1 : 0);
  return like(rt, self, std::string(head) + pad_text(rt, text.substr(head.size()), bound.integer(0, 0) - (sign ? 1 : 0), "0", 1));
}

Value expandtabs(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "expandtabs()", args, {"tabsize"});
  const std::int64_t size = bound.integer(0, 8);
  constexpr std::int64_t kMaxTab = 1000;
  if (size > kMaxTab) rt.fail("expandtabs(): a tab of {} characters; the limit is {}", size, kMaxTab);
  std::string out;
  std::int64_t column = 0;
  const std::string_view text = self.as_text();
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, at);
    if (c == '\t') {
      const std::int64_t blanks = size > 0 ? size - column % size : 0;
      rt.check_memory(out.size() + static_cast<std::size_t>(blanks));
      out.append(static_cast<std::size_t>(blanks), ' ');
      column += blanks;
    } else {
      append_char(out, c);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return like(rt, self, std::move(out));
}

// Whether the text is not empty and every character has one of the flags.
template <std::uint32_t flags, bool if_empty = false>
Value all_are(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "a method that tests characters", args, {});
  const std::string_view text = self.as_text();
  rt.work(text.size());
  for (std::size_t at = 0; at < text.size();)
    if (!has_flag(next_char(text, at), flags)) return Value::boolean(false);
  return Value::boolean(if_empty || !text.empty());
}

Value isascii(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "isascii()", args, {});
  return Value::boolean(is_ascii(self.as_text()));
}

template <bool upper>
Value is_cased(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "islower() or isupper()", args, {});
  return Value::boolean(has_case(self.as_text(), upper));
}

Value istitle(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "istitle()", args, {});
  bool in_word = false, any = false;
  const std::string_view text = self.as_text();
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t flags = char_flags(next_char(text, at));
    const bool upper = (flags & (kUpper | kTitle)) != 0, lower = (flags & kLower) != 0;
    if ((upper && in_word) || (lower && !in_word)) return Value::boolean(false);
    in_word = upper || lower;
    any = any || in_word;
  }
  return Value::boolean(any);
}

Value isidentifier(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "isidentifier()", args, {});
  const std::string_view text = self.as_text();
  for (std::size_t at = 0; at < text.size();) {
    const bool first = at == 0;
    if (!has_flag(next_char(text, at), first ? kWordStart : kWord)) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

Value format(Runtime& rt, const Value& self, CallArgs& args) {
  refuse_markup(rt, self, "format()");
  return format_braces(rt, self.as_text(), args);
}

Value format_map(Runtime& rt, const Value& self, CallArgs& args) {
  const Bound bound(rt, "format_map()", args, {"mapping"}, 1, true);
  refuse_markup(rt, self, "format_map()");
  if (!bound[0]->is_dict()) rt.fail("format_map() needs a dict, not {}", object_name(*bound[0]));
  CallArgs members;
  for (std::size_t i = 0; i < dict_size(*bound[0]); ++i)
    if (auto pair = dict_at(rt, *bound[0], i); pair.first.is_text()) members.named.push_back(std::move(pair));
  return format_braces(rt, self.as_text(), members);
}

Value left_out(Runtime& rt, const Value&, CallArgs&) {
  rt.fail("encode(), maketrans() and translate() of texts are not implemented");
}

constexpr MethodRow kTextMethods[] = {
    {"capitalize", capitalize_text},
    {"casefold", casefold},
    {"center", padded<0>},
    {"count", count},
    {"encode", left_out},
    {"endswith", has_affix<true>},
    {"expandtabs", expandtabs},
    {"find", find<false>},
    {"format", format},
    {"format_map", format_map},
    {"index", index<false>},
    {"isalnum", all_are<kAlpha | kDecimal | kDigit | kNumeric>},
    {"isalpha", all_are<kAlpha>},
    {"isascii", isascii},
    {"isdecimal", all_are<kDecimal>},
    {"isdigit", all_are<kDigit>},
    {"isidentifier", isidentifier},
    {"islower", is_cased<false>},
    {"isnumeric", all_are<kNumeric>},
    {"isprintable", all_are<kPrintable, true>},
    {"isspace", all_are<kSpace>},
    {"istitle", istitle},
    {"isupper", is_cased<true>},
    {"join", join},
    {"ljust", padded<-1>},
    {"lower", cased<Case::lower>},
    {"lstrip", stripped<true, false>},
    {"maketrans", left_out},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"rfind", find<true>},
    {"rindex", index<true>},
    {"rjust", padded<1>},
    {"rpartition", partition<true>},
    {"rsplit", rsplit},
    {"rstrip", stripped<false, true>},
    {"split", split},
    {"splitlines", splitlines},
    {"startswith", has_affix<false>},
    {"strip", stripped<true, true>},
    {"swapcase", cased<Case::swap>},
    {"title", cased<Case::title>},
    {"translate", left_out},
    {"upper", cased<Case::upper>},
    {"zfill", zfill},
};

}  // namespace

const MethodRow* find_text_method(std::string_view name) {
  return find_row(kTextMethods, name);
}

bool has_case(std::string_view text, bool upper) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t flags = char_flags(next_char(text, at));
    if ((flags & (upper ? kLower | kTitle : kUpper | kTitle)) != 0) return false;
    any = any || (flags & (upper ? kUpper : kLower)) != 0;
  }
  return any;
}

std::string pad_text(Runtime& rt, std::string_view text, std::int64_t width, std::string_view fill, int side) {
  const auto size = static_cast<std::int64_t>(char_count(text));
  if (width <= size) return std::string(text);
  const std::int64_t all = width - size;
  if (static_cast<std::uint64_t>(all) > rt.options().limits.memory_bytes / fill.size())
    rt.fail("a text of {} characters: more than {} bytes (the limit)", width, rt.options().limits.memory_bytes);
  rt.check_memory(static_cast<std::size_t>(all) * fill.size() + text.size());
  // When centring, Python puts the odd fill character before the text if the width is odd.
  const std::int64_t left = side > 0 ? all : side < 0 ? 0 : all / 2 + (all & width & 1);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (std::int64_t i = left; i < all; ++i) out += fill;
  return out;
}

Value replace_text(Runtime& rt, std::string_view text, std::string_view old, std::string_view with, std::int64_t most) {
  rt.work(text.size());
  std::string out;
  std::int64_t done = 0;
  std::size_t at = 0;
  const auto more = [&] { return most < 0 || done < most; };
  if (old.empty()) {
    while (more()) {
      out += with;
      ++done;
      if (at >= text.size()) break;
      const std::size_t begin = at;
      next_char(text, at);
      out += text.substr(begin, at - begin);
      rt.check_memory(out.size());
    }
  } else {
    for (std::size_t found; more() && (found = text.find(old, at)) != text.npos; ++done) {
      out += text.substr(at, found - at);
      out += with;
      at = found + old.size();
      rt.check_memory(out.size());
    }
  }
  if (at < text.size()) out += text.substr(at);
  return rt.text(std::move(out));
}

}  // namespace qft::jinja
