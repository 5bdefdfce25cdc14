#include "unicode.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <simdjson.h>
#include <utf8proc.h>

namespace qft::tokenizer {
namespace {

struct PropertyRange {
  std::uint32_t first, last;
  std::uint8_t properties;
};
constexpr PropertyRange kRanges[] = {
#include "unicode_ranges.inc"
};
// Unicode White_Space.
constexpr PropertyRange kSpaces[] = {
    {0x09, 0x0D, kSpace},     {0x20, 0x20, kSpace},     {0x85, 0x85, kSpace},     {0xA0, 0xA0, kSpace},
    {0x1680, 0x1680, kSpace}, {0x2000, 0x200A, kSpace}, {0x2028, 0x2029, kSpace}, {0x202F, 0x202F, kSpace},
    {0x205F, 0x205F, kSpace}, {0x3000, 0x3000, kSpace}, {0x0A, 0x0A, kNewline},   {0x0D, 0x0D, kNewline},
};

std::uint8_t* make_properties() {
  // calloc returns zero pages: only pages with a range take memory. Lives as long as the process.
  auto* table = static_cast<std::uint8_t*>(std::calloc(0x110000, 1));
  require(table != nullptr, "cannot allocate the table of character properties (1 MiB)");
  for (const PropertyRange& r : kRanges)
    for (std::uint32_t c = r.first; c <= r.last; ++c) table[c] |= r.properties;
  for (const PropertyRange& r : kSpaces)
    for (std::uint32_t c = r.first; c <= r.last; ++c)
      table[c] = static_cast<std::uint8_t>((table[c] & ~kClassMask) | r.properties);
  return table;
}

/// The sequence that starts at a byte: a whole code point, one that the end of the text cuts off, or an invalid one.
struct Sequence {
  enum State { kWhole, kUnfinished, kBroken } state;
  std::size_t bytes;  ///< of the code point, or of the maximal ill-formed part
};

/// Recognises well-formed sequences by table 3-7 of the Unicode standard.
Sequence read_sequence(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Sequence::kWhole, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Sequence::kBroken, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {Sequence::kUnfinished, i};
    const bool good = i == 1 ? byte(1) >= low && byte(1) <= high : (byte(i) & 0xC0) == 0x80;
    if (!good) return {Sequence::kBroken, i};
  }
  return {Sequence::kWhole, length};
}

/// Returns the offset of the first NFC-active code point at or after `from`, or text.size().
std::size_t find_active(std::string_view text, std::size_t from, const std::uint8_t* properties) {
  const char* data = text.data();
  std::size_t i = from;
  while (i < text.size()) {
    if (static_cast<unsigned char>(data[i]) < 0x80) {
      while (i + 8 <= text.size()) {
        std::uint64_t word;
        std::memcpy(&word, data + i, 8);
        if (word & 0x8080808080808080ull) break;
        i += 8;
      }
      while (i < text.size() && static_cast<unsigned char>(data[i]) < 0x80) ++i;
      continue;
    }
    const CodePoint c = decode_utf8(data + i);
    if (properties[c.value] & kNfcActive) return i;
    i += c.bytes;
  }
  return i;
}

/// Appends the NFC of a run of active code points, including the starter before them if there is one.
void append_normalized(std::string_view stretch, std::vector<utf8proc_int32_t>& buffer, std::string& out) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  buffer.clear();
  for (std::size_t i = 0; i < stretch.size();) {
    const CodePoint c = decode_utf8(stretch.data() + i);
    i += c.bytes;
    utf8proc_int32_t parts[8];
    int boundary_class = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), parts, 8, kOptions, &boundary_class);
    QFT_ASSERT(n > 0 && n <= 8, "decomposition of U+{:04X}: {}", c.value, n);
    buffer.insert(buffer.end(), parts, parts + n);
  }
  // utf8proc's reordering is quadratic in the length of a run of marks; this sort is not.
  const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto it = buffer.begin(); it != buffer.end();) {
    if (combining_class(*it) == 0) {
      ++it;
      continue;
    }
    auto end = std::find_if(it, buffer.end(), [&](auto c) { return combining_class(c) == 0; });
    std::stable_sort(it, end, [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    it = end;
  }
  auto count = static_cast<utf8proc_ssize_t>(buffer.size());
  count = utf8proc_normalize_utf32(buffer.data(), count, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(static_cast<std::uint32_t>(buffer[i]), out);
}

}  // namespace

const std::uint8_t* char_properties() {
  static const std::uint8_t* const table = make_properties();
  return table;
}

void append_utf8(std::uint32_t c, std::string& out) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

void require_utf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return;
  std::size_t i = 0;
  while (i < text.size()) {
    const Sequence s = read_sequence(text, i);
    if (s.state != Sequence::kWhole) break;
    i += s.bytes;
  }
  fail("the text is not UTF-8: byte 0x{:02X} at offset {} of {}; convert the source (iconv -t UTF-8) or repair it",
       static_cast<unsigned char>(text[i]), i, text.size());
}

std::size_t append_lossy(std::string_view bytes, bool partial, std::string& out) {
  std::size_t i = 0, copied = 0;
  while (i < bytes.size()) {
    if (static_cast<unsigned char>(bytes[i]) < 0x80) {
      ++i;
      continue;
    }
    const Sequence s = read_sequence(bytes, i);
    if (s.state != Sequence::kWhole) {
      out.append(bytes, copied, i - copied);
      if (partial && s.state == Sequence::kUnfinished) return i;
      out += "\xEF\xBF\xBD";
      copied = i + s.bytes;
    }
    i += s.bytes;
  }
  out.append(bytes, copied, i - copied);
  return i;
}

bool normalize_nfc(std::string_view text, std::string& out) {
  const std::uint8_t* properties = char_properties();
  std::size_t active = find_active(text, 0, properties);
  if (active == text.size()) return false;
  out.clear();
  std::size_t copied = 0;
  std::vector<utf8proc_int32_t> buffer;
  while (active < text.size()) {
    // An inactive code point is a starter that does not join the text before it, so each run is normalised separately. The
    // starter before the marks belongs to the run, unless it is a mark only in utf8proc's newer Unicode.
    std::size_t begin = active;
    if (active > copied) {
      const std::size_t base = previous_code_point(text, active);
      const auto c = static_cast<utf8proc_int32_t>(decode_utf8(text.data() + base).value);
      if (utf8proc_get_property(c)->combining_class == 0) begin = base;
    }
    std::size_t end = active;
    while (end < text.size()) {
      const CodePoint c = decode_utf8(text.data() + end);
      if (!(properties[c.value] & kNfcActive)) break;
      end += c.bytes;
    }
    out.append(text, copied, begin - copied);
    append_normalized(text.substr(begin, end - begin), buffer, out);
    copied = end;
    active = find_active(text, end, properties);
  }
  out.append(text, copied);
  return true;
}

}  // namespace qft::tokenizer
