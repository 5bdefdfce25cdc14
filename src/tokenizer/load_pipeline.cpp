// Loads the normalizer, pre_tokenizer and decoder of tokenizer.json.
#include "qft/core/error.h"

#include "loader.h"

namespace qft::tokenizer {
namespace {

SplitBehavior parse_behavior(const JsonValue& value) {
  const std::string_view name = value.string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  fail("{}: '{}' is not a behavior; use Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous", value.place(),
       name);
}

PreTokenizer::Stage parse_split(const JsonValue& value) {
  require_known_keys(value, {"type", "pattern", "behavior", "invert"});
  const SplitBehavior behavior = parse_behavior(value.at("behavior"));
  const bool invert = value.flag("invert", false);
  const JsonValue pattern = value.at("pattern");
  if (const auto literal = pattern.get("String")) {
    require(!literal->string().empty(), "{} is empty: it would cut the text everywhere", literal->place());
    return Split{Literal{std::string(literal->string())}, behavior, invert};
  }
  const JsonValue regex = pattern.at("Regex");
  // The scanned patterns match the whole text, so keeping the matches equals isolating them.
  const bool keeps_matches = behavior == SplitBehavior::isolated || (behavior == SplitBehavior::removed && invert);
  if (const auto scanner = scanner_for(regex.string()); scanner && keeps_matches) return *scanner;
  try {
    return Split{Regex(std::string(regex.string())), behavior, invert};
  } catch (const Error& error) {
    fail("{}: {}", regex.place(), error.what());
  }
}

void add_byte_level(const JsonValue& value, std::optional<bool> prefix_space, PreTokenizer& out) {
  require_known_keys(value, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (prefix_space.value_or(value.at("add_prefix_space").boolean())) out.add(PrefixSpace{});
  if (value.flag("use_regex", true)) out.add(ScannerKind::gpt2);
}

void flatten(const JsonValue& value, std::string_view list_key, std::vector<JsonValue>& out) {
  if (value.at("type").string() != "Sequence") return out.push_back(value);
  for (const JsonValue& element : value.at(list_key).elements()) flatten(element, list_key, out);
}

}  // namespace

void load_normalizer(const std::optional<JsonValue>& normalizer, Tokenizer::Impl& impl) {
  if (!normalizer) return;
  std::vector<JsonValue> parts;
  flatten(*normalizer, "normalizers", parts);
  for (const JsonValue& part : parts) {
    const std::string_view type = part.at("type").string();
    require(type == "NFC",
            "{}: the normalizer '{}' is not supported; qft supports NFC, Sequence and null, as in byte-level "
            "BPE tokenizers (Qwen, Llama 3, GPT-2, SmolLM2, DeepSeek)",
            part.place(), type);
    impl.nfc = true;
  }
}

void load_pre_tokenizer(const JsonValue& pre_tokenizer, std::optional<bool> prefix_space, PreTokenizer& out) {
  std::vector<JsonValue> parts;
  flatten(pre_tokenizer, "pretokenizers", parts);
  bool byte_level = false;
  for (const JsonValue& part : parts) {
    const std::string_view type = part.at("type").string();
    require(!byte_level, "{}: '{}' follows ByteLevel; qft supports ByteLevel as the last step only", part.place(), type);
    if (type == "ByteLevel") {
      byte_level = true;
      // transformers applies its add_prefix_space to a ByteLevel that is not inside a Sequence.
      add_byte_level(part, pre_tokenizer.at("type").string() == "ByteLevel" ? prefix_space : std::nullopt, out);
    } else if (type == "Split") {
      out.add(parse_split(part));
    } else if (type == "Digits") {
      require_known_keys(part, {"type", "individual_digits"});
      out.add(Digits{part.at("individual_digits").boolean()});
    } else {
      fail(
          "{}: the pre-tokenizer '{}' is not supported; qft supports ByteLevel, Split, Digits and Sequence, as in byte-level "
          "BPE tokenizers",
          part.place(), type);
    }
  }
  require(byte_level, "{}: there is no ByteLevel step, but qft supports byte-level BPE only", pre_tokenizer.place());
}

/// Checks that ByteLevel alone decides the text: the other decoders must leave every token unchanged.
void check_decoder(const JsonValue& decoder, const Vocabulary& vocabulary) {
  std::vector<JsonValue> parts;
  flatten(decoder, "decoders", parts);
  require(!parts.empty() && parts.back().at("type").string() == "ByteLevel",
          "{}: the last decoder is not ByteLevel, but qft supports byte-level BPE only", decoder.place());
  parts.pop_back();
  for (const JsonValue& part : parts) {
    const std::string_view type = part.at("type").string();
    std::string_view needle;
    if (type == "ByteFallback") {
      needle = "<0x";
    } else if (type == "Replace") {
      needle = part.at("pattern").at("String").string();
    } else {
      require(type == "Fuse",
              "{}: the decoder '{}' is not supported; qft supports ByteLevel, preceded by Fuse, Replace "
              "and ByteFallback if they change no token",
              part.place(), type);
    }
    for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
      if (!vocabulary.has(id)) continue;
      const std::string_view token = vocabulary.content(id);
      const bool changed = needle.empty() ? !byte_level::covers(token) : token.find(needle) != std::string_view::npos;
      require(!changed, "{}: the decoder '{}' changes token {} ('{}'); qft supports it only if it changes none", part.place(),
              type, id, token);
    }
  }
}

}  // namespace qft::tokenizer
