#include "qft/encode/token_weights.h"

#include "qft/config/nearest.h"
#include "qft/core/error.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>

#include <fmt/ranges.h>

namespace qft::encode {
namespace {

/// `weight` is for the word, `following_weight` for the text up to the scheme's next word.
struct Keyword {
  std::string_view word;
  float weight, following_weight;
};

enum class Inside : std::uint8_t { nothing, spaces, anything };
enum class Behind : std::uint8_t { nothing, newline, spaces };

/// A pattern in a text: `open`, its inside, `close`, and any optional text behind it.
struct Pattern {
  std::string_view open, close;
  Inside inside;
  Behind behind;
  bool at_start;  // only at the start of a part
  float weight;
};

constexpr Keyword kReact[] = {
    {"Action:", 2, 2}, {"Action Input:", 2, 2}, {"Thought:", 1, 1}, {"Final Answer:", 1, 1}, {"Observation:", 2, 0}};
constexpr Keyword kAlphaUmi[] = {{"Action:", 2, 2},       {"Action Input:", 2, 2}, {"Thought:", 1, 1},
                                 {"Final Answer:", 1, 1}, {"Observation:", 2, 0},  {"Next:", 2, 2}};
constexpr Keyword kQwen[] = {{"✿FUNCTION✿:", 2, 2}, {"✿ARGS✿:", 2, 2}, {"✿RETURN✿:", 1, 1}, {"✿RESULT✿:", 2, 0}};
constexpr Keyword kAgentFlan[] = {{"Name:", 1, 3},         {"Action:", 1, 3},    {"ACTION:", 1, 3},       {"Tool:", 1, 3},
                                  {"Command", 1, 3},       {"Arguments:", 1, 3}, {"action input", 1, 3},  {"ACTION_INPUT:", 1, 3},
                                  {"Action Input:", 1, 3}, {"Thought:", 1, 1},   {"Final Answer:", 1, 1}, {"Observation:", 2, 0}};
/// After a question with one of these, the whole answer has weight 3.
constexpr std::string_view kAgentFlanQuestions[] = {"What is the tool you want to use", "What are the required parameter names",
                                                    "What is the value of"};
constexpr float kAgentFlanQuestionWeight = 3;

constexpr Pattern kHermes[] = {{"<tool_call>", "</tool_call>", Inside::anything, Behind::nothing, false, 2}};
constexpr Pattern kEmptyThink[] = {
    {"<think>", "</think>", Inside::spaces, Behind::spaces, true, 0},
    {"<seed:think><seed:cot_budget_reflect>The current thinking budget is 0, so I will directly start answering the question.",
     "</seed:cot_budget_reflect>\n</seed:think>", Inside::nothing, Behind::spaces, true, 0},
    {"</think>", "", Inside::nothing, Behind::spaces, true, 0},
    {"<|channel>thought\n<channel|>", "", Inside::nothing, Behind::nothing, true, 0},
    {"</mm:think>", "", Inside::nothing, Behind::spaces, true, 0}};
constexpr Pattern kThinkPrefix[] = {{"<think>", "", Inside::nothing, Behind::newline, true, 0}};

}  // namespace

/// A weighting scheme, defined by keywords or patterns.
struct WeightScheme {
  std::string_view name;
  std::span<const Keyword> keywords = {};
  std::span<const Pattern> patterns = {};
  std::span<const std::string_view> questions = {};
};

namespace {

constexpr WeightScheme kSchemes[] = {
    {.name = "hermes", .patterns = kHermes},
    {.name = "react", .keywords = kReact},
    {.name = "agentflan", .keywords = kAgentFlan, .questions = kAgentFlanQuestions},
    {.name = "alpha_umi", .keywords = kAlphaUmi},
    {.name = "qwen", .keywords = kQwen},
    {.name = "ignore_empty_think", .patterns = kEmptyThink},
    {.name = "ignore_think_prefix", .patterns = kThinkPrefix},
};

/// Returns the size of the space at the beginning of `text`, as matched by Python's \\s; 0 if there is none.
std::size_t space_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = static_cast<unsigned char>(text.front());
  if (byte < 0x80) return byte == ' ' || (byte >= 0x09 && byte <= 0x0D) || (byte >= 0x1C && byte <= 0x1F) ? 1 : 0;
  constexpr std::string_view kWide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\xA8",
                                        "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
  if (text.starts_with("\xE2\x80") && text.size() > 2 && static_cast<unsigned char>(text[2]) <= 0x8A)
    return 3;  // U+2000 to U+200A
  for (const std::string_view space : kWide)
    if (text.starts_with(space)) return space.size();
  return 0;
}

std::size_t spaces_at(std::string_view text, std::size_t from) {
  while (const std::size_t bytes = space_bytes(text.substr(from))) from += bytes;
  return from;
}

/// Returns the end of the pattern's match that begins at `from`.
std::optional<std::size_t> match_at(const Pattern& pattern, std::string_view text, std::size_t from) {
  if (!text.substr(from).starts_with(pattern.open)) return std::nullopt;
  std::size_t at = from + pattern.open.size();
  if (pattern.inside == Inside::spaces) at = spaces_at(text, at);
  if (pattern.inside == Inside::anything) {
    at = at < text.size() ? text.find(pattern.close, at + 1) : text.npos;  // at least one character
    if (at == text.npos) return std::nullopt;
  }
  if (!text.substr(at).starts_with(pattern.close)) return std::nullopt;
  at += pattern.close.size();
  if (pattern.behind == Behind::spaces) at = spaces_at(text, at);
  if (pattern.behind == Behind::newline && text.substr(at).starts_with('\n')) ++at;
  return at;
}

struct Found {
  std::size_t begin, end;
};

/// Returns the pattern's first match from `from` on.
std::optional<Found> find_from(const Pattern& pattern, std::string_view text, std::size_t from) {
  if (pattern.at_start) {
    const auto end = from == 0 ? match_at(pattern, text, 0) : std::nullopt;
    return end ? std::optional(Found{0, *end}) : std::nullopt;
  }
  for (std::size_t at = text.find(pattern.open, from); at != text.npos; at = text.find(pattern.open, at + 1)) {
    if (const auto end = match_at(pattern, text, at)) return Found{at, *end};
  }
  return std::nullopt;
}

/// Returns the first match of all patterns; at the same place, the first pattern wins.
std::optional<Found> find_first(std::span<const Pattern> patterns, std::string_view text, std::size_t from) {
  std::optional<Found> first;
  for (const Pattern& pattern : patterns)
    if (const auto found = find_from(pattern, text, from); found && (!first || found->begin < first->begin)) first = found;
  return first;
}

void add(std::vector<WeightedText>& parts, std::string_view text, float weight) {
  if (!text.empty()) parts.push_back({text, weight});
}

/// As in ms-swift, text between matches that begins like a pattern gets that pattern's weight.
float weight_of(std::span<const Pattern> patterns, std::string_view part) {
  const auto match = std::ranges::find_if(patterns, [&](const Pattern& p) { return match_at(p, part, 0).has_value(); });
  return match == patterns.end() ? 1.0F : match->weight;
}

void split_by_patterns(std::span<const Pattern> patterns, const WeightedText& text, std::vector<WeightedText>& parts) {
  const auto add_part = [&](std::string_view part) { add(parts, part, text.weight * weight_of(patterns, part)); };
  std::size_t from = 0;
  while (const auto found = find_first(patterns, text.text, from)) {
    add_part(text.text.substr(from, found->begin - from));
    add_part(text.text.substr(found->begin, found->end - found->begin));
    from = found->end;
  }
  add_part(text.text.substr(from));
}

void split_by_keywords(std::span<const Keyword> keywords, const WeightedText& text, std::vector<WeightedText>& parts) {
  const std::string_view all = text.text;
  // Next place of each keyword, searched again only once passed: a text may be long and lack most keywords.
  std::vector<std::size_t> places;
  for (const Keyword& keyword : keywords) places.push_back(all.find(keyword.word));
  float weight = 1.0F;
  for (std::size_t from = 0; from < all.size();) {
    for (std::size_t k = 0; k < keywords.size(); ++k)
      if (places[k] < from) places[k] = all.find(keywords[k].word, from);
    const auto first = std::ranges::min_element(places);
    if (first == places.end() || *first == all.npos) return add(parts, all.substr(from), text.weight * weight);
    const Keyword& next = keywords[static_cast<std::size_t>(first - places.begin())];
    add(parts, all.substr(from, *first - from), text.weight * weight);
    add(parts, all.substr(*first, next.word.size()), text.weight * next.weight);
    weight = next.following_weight;
    from = *first + next.word.size();
  }
}

void split_by(const WeightScheme& scheme, std::string_view question, const WeightedText& text, std::vector<WeightedText>& parts) {
  const auto is_asked = [&](std::string_view words) { return question.find(words) != question.npos; };
  if (std::ranges::any_of(scheme.questions, is_asked)) return add(parts, text.text, text.weight * kAgentFlanQuestionWeight);
  if (scheme.keywords.empty()) return split_by_patterns(scheme.patterns, text, parts);
  split_by_keywords(scheme.keywords, text, parts);
}

}  // namespace

TokenWeights::TokenWeights(std::string_view schemes) {
  while (!schemes.empty()) {
    const std::size_t plus = schemes.find('+');
    const std::string_view name = schemes.substr(0, plus);
    const auto* const found = std::ranges::find(kSchemes, name, &WeightScheme::name);
    if (found == std::end(kSchemes))
      fail_config("loss_scale: '{}' is not a scheme{}", name,
                  config::suggestion(name, weight_scheme_names(),
                                     fmt::format("the schemes are {}, joined by '+', after default, last_round or all",
                                                 fmt::join(weight_scheme_names(), ", "))));
    schemes_.push_back(found);
    schemes.remove_prefix(plus == schemes.npos ? schemes.size() : plus + 1);
  }
}

std::vector<WeightedText> TokenWeights::split(std::string_view text, std::string_view question) const {
  std::vector<WeightedText> parts, split;
  add(parts, text, 1.0F);
  for (const WeightScheme* scheme : schemes_) {
    split.clear();
    for (const WeightedText& part : parts) split_by(*scheme, question, part, split);
    std::swap(parts, split);
  }
  return parts;
}

std::vector<std::string_view> weight_scheme_names() {
  std::vector<std::string_view> names;
  for (const WeightScheme& scheme : kSchemes) names.push_back(scheme.name);
  return names;
}

}  // namespace qft::encode
