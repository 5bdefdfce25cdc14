#include "item_text.h"

#include "qft/core/error.h"
#include "qft/pack/print.h"

#include <algorithm>

namespace qft::pack {
namespace {

struct Piece {
  std::string text;
  bool learned;
};

// A sequence cut where learning begins and ends. A character that a cut goes through is U+FFFD on both sides.
std::vector<Piece> pieces_of(const encode::EncodedSequence& sequence, const tokenizer::Tokenizer& tokenizer) {
  std::vector<Piece> pieces;
  const auto add = [&](std::int32_t begin, std::int32_t end, bool learned) {
    if (begin < end)
      pieces.push_back(
          {tokenizer.decode(
               std::span(sequence.ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))),
           learned});
  };
  std::int32_t at = 0;
  for (const encode::Span& span : sequence.label_spans) {
    add(at, span.begin, false);
    add(span.begin, span.end, true);
    at = span.end;
  }
  add(at, static_cast<std::int32_t>(sequence.ids.size()), false);
  return pieces;
}

std::string sequence_name(std::size_t number, std::size_t sequences) {
  if (sequences == 1) return {};
  return number == 0 ? "chosen" : "rejected";
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\t' || (byte >= 0x20 && byte != 0x7F)) {
      out += c;
    } else {  // U+2400 + c, and U+2421 for DEL
      out += "\xE2\x90";
      out += static_cast<char>(0x80 + (byte == 0x7F ? 0x21 : byte));
    }
  }
  return out;
}

std::string format_items(const PackReader& pack, const tokenizer::Tokenizer& tokenizer, std::int64_t count, LearnedMarks marks) {
  const bool colour = marks == LearnedMarks::colour;
  const char *const begin = colour ? "\x1b[32m" : "[[", *const end = colour ? "\x1b[0m" : "]]";
  std::string text;
  for (std::int64_t i = 0; i < std::min(count, pack.num_items()); ++i) {
    const encode::EncodedItem item = pack.item(i);
    text += fmt::format("\nitem {}: record {} of {}, category {}, {} tokens, {} to learn\n", i, item.source_index,
                        pack.attributes().sources[static_cast<std::size_t>(item.dataset)].name, printable(item.category),
                        pack.item_tokens()[static_cast<std::size_t>(i)], pack.item_labels()[static_cast<std::size_t>(i)]);
    for (std::size_t s = 0; s < item.sequences.size(); ++s) {
      if (item.sequences.size() > 1) text += sequence_name(s, item.sequences.size()) + ":\n";
      for (const Piece& piece : pieces_of(item.sequences[s], tokenizer))
        text += piece.learned ? begin + printable(piece.text) + end : printable(piece.text);
      text += '\n';
    }
  }
  return text;
}

nlohmann::ordered_json items_as_text(const PackReader& pack, const tokenizer::Tokenizer& tokenizer, std::int64_t count) {
  nlohmann::ordered_json items = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < std::min(count, pack.num_items()); ++i) {
    const encode::EncodedItem item = pack.item(i);
    nlohmann::ordered_json sequences = nlohmann::ordered_json::array();
    for (const encode::EncodedSequence& sequence : item.sequences) {
      nlohmann::ordered_json pieces = nlohmann::ordered_json::array();
      for (const Piece& piece : pieces_of(sequence, tokenizer))
        pieces.push_back({{"text", piece.text}, {"learned", piece.learned}});
      sequences.push_back(std::move(pieces));
    }
    items.push_back({{"item", i},
                     {"dataset", item.dataset},
                     {"record", item.source_index},
                     {"category", item.category},
                     {"sequences", std::move(sequences)}});
  }
  return items;
}

}  // namespace qft::pack
