#include "item_text.h"

#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/pack/print.h"

#include <algorithm>

namespace qft::pack {
namespace {

struct Piece {
  std::string text;
  float weight;  // 0: not learned
  bool learned() const { return weight > 0; }
};

// Returns "*2" for a weight other than 1.
std::string factor(const Piece& piece) {
  return piece.weight == 0 || piece.weight == 1 ? std::string() : fmt::format("*{}", piece.weight);
}

// Cuts a sequence at the boundaries of learned spans. A character that is cut becomes U+FFFD on both sides.
std::vector<Piece> pieces_of(const encode::EncodedSequence& sequence, const tokenizer::Tokenizer& tokenizer) {
  std::vector<Piece> pieces;
  const auto add = [&](std::int32_t begin, std::int32_t end, float weight) {
    if (begin < end)
      pieces.push_back(
          {tokenizer.decode(
               std::span(sequence.ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))),
           weight});
  };
  std::int32_t at = 0;
  for (std::size_t s = 0; s < sequence.label_spans.size(); ++s) {
    const encode::Span& span = sequence.label_spans[s];
    add(at, span.begin, 0);
    add(span.begin, span.end, sequence.span_weights.empty() ? 1 : sequence.span_weights[s]);
    at = span.end;
  }
  add(at, static_cast<std::int32_t>(sequence.ids.size()), 0);
  return pieces;
}

/// Returns the role of a sequence in its item; "" if the item has only one sequence.
std::string sequence_name(const PackReader& pack, const encode::EncodedItem& item, std::size_t number) {
  if (pack.attributes().varying_sequences) {
    const config::SampleKind kind = pack.attributes().stage_row().sample;
    const auto positives = static_cast<std::size_t>(encode::positives_of(kind, std::ssize(item.sequences), item.tags));
    if (kind == config::SampleKind::ranking) return number < positives ? "positive document" : "negative document";
    return number == 0 ? "anchor" : number <= positives ? "positive" : "negative";
  }
  if (item.sequences.size() == 1) return {};
  if (sample_kind(pack) != config::SampleKind::feedback) return number == 0 ? "chosen" : "rejected";
  return number > 0 ? "another answer, for the KL" : encode::is_desirable(item.tags) ? "desirable" : "undesirable";
}

/// Returns the text on one line; a long text is reduced to its beginning and its end.
std::string excerpt(const std::string& text) {
  constexpr std::size_t kMaxBytes = 480;  // bytes
  std::string shown = text;
  if (text.size() > kMaxBytes) {
    const auto whole = [&](std::size_t at) {  // moves to the begin of a character
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
      return at;
    };
    shown = text.substr(0, whole(kMaxBytes / 2)) + " ... " + text.substr(whole(text.size() - kMaxBytes / 2));
  }
  const std::string quoted = nlohmann::json(shown).dump();
  return quoted.substr(1, quoted.size() - 2);  // without the quotation marks
}

/// ", 12 to learn"; empty if the pack's stage does not learn tokens.
std::string learned_words(const PackReader& pack, std::int64_t labels) {
  return pack.attributes().stage_row().token_labels ? fmt::format(", {} to learn", labels) : "";
}

}  // namespace

std::optional<config::SampleKind> sample_kind(const PackReader& pack) {
  const config::Stage* stage = config::find_stage(pack.attributes().stage);
  return stage == nullptr ? std::nullopt : std::optional(stage->sample);
}

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
    text += fmt::format("\nitem {}: record {} of {}, category {}, {} tokens{}\n", i, item.source_index,
                        pack.attributes().sources[static_cast<std::size_t>(item.dataset)].name, printable(item.category),
                        pack.item_tokens()[static_cast<std::size_t>(i)],
                        learned_words(pack, pack.item_labels()[static_cast<std::size_t>(i)]));
    for (std::size_t s = 0; s < item.sequences.size(); ++s) {
      if (item.sequences.size() > 1) text += sequence_name(pack, item, s) + ":\n";
      for (const Piece& piece : pieces_of(item.sequences[s], tokenizer))
        text += piece.learned() ? begin + printable(piece.text) + end + factor(piece) : printable(piece.text);
      text += '\n';
    }
  }
  return text;
}

std::vector<std::string> sample_lines(const PackReader& pack, std::int64_t number, const tokenizer::Tokenizer& tokenizer) {
  const encode::EncodedItem item = pack.item(number);
  std::vector<std::string> lines = {
      fmt::format("first sample: record {} of {}{}", item.source_index,
                  pack.attributes().sources[static_cast<std::size_t>(item.dataset)].name,
                  pack.attributes().stage_row().token_labels ? "; [[ ]] marks the learned text" : "")};
  for (std::size_t s = 0; s < item.sequences.size(); ++s) {
    const encode::EncodedSequence& sequence = item.sequences[s];
    std::string text;
    for (const Piece& piece : pieces_of(sequence, tokenizer))
      text += piece.learned() ? "[[" + excerpt(piece.text) + "]]" + factor(piece) : excerpt(piece.text);
    const std::string name = sequence_name(pack, item, s);
    lines.push_back(fmt::format("  {}{}{}: {}", name.empty() ? "" : name + ": ",
                                count_noun(static_cast<std::int64_t>(sequence.ids.size()), "token"),
                                learned_words(pack, sequence.num_labels()), text));
  }
  return lines;
}

nlohmann::ordered_json items_to_json(const PackReader& pack, const tokenizer::Tokenizer& tokenizer, std::int64_t count) {
  nlohmann::ordered_json items = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < std::min(count, pack.num_items()); ++i) {
    const encode::EncodedItem item = pack.item(i);
    nlohmann::ordered_json sequences = nlohmann::ordered_json::array();
    for (const encode::EncodedSequence& sequence : item.sequences) {
      nlohmann::ordered_json pieces = nlohmann::ordered_json::array();
      for (const Piece& piece : pieces_of(sequence, tokenizer)) {
        pieces.push_back({{"text", piece.text}, {"learned", piece.learned()}});
        if (!factor(piece).empty()) pieces.back()["weight"] = piece.weight;
      }
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
