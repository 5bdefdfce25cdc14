#include "added_tokens.h"

#include "qft/core/error.h"

#include <cstring>

#include "unicode.h"

namespace qft::tokenizer {

void AddedTokenMatcher::add(const AddedToken& token, std::string_view pattern) {
  if (nodes_.empty()) nodes_.emplace_back();
  std::int32_t node = 0;
  for (const char c : pattern) {
    std::int32_t next = 0;
    for (const auto& [byte, child] : nodes_[node].edges)
      if (byte == c) next = child;
    if (next == 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_[node].edges.emplace_back(c, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  require(nodes_[node].token < 0, "added tokens {} and {} ('{}') are the same text after normalisation",
          nodes_[node].token < 0 ? -1 : tokens_[nodes_[node].token].id, token.id, token.content);
  nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  first_bytes_.clear();
  for (const auto& [byte, child] : nodes_[0].edges) {
    first_[static_cast<unsigned char>(byte)] = child;
    first_bytes_ += byte;
  }
}

std::size_t AddedTokenMatcher::next_candidate(std::string_view text, std::size_t from) const {
  if (first_bytes_.size() == 1) {
    const void* hit = std::memchr(text.data() + from, first_bytes_[0], text.size() - from);
    return hit == nullptr ? text.size() : static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
  }
  while (from < text.size() && first_[static_cast<unsigned char>(text[from])] == 0) ++from;
  return from;
}

bool AddedTokenMatcher::find(std::string_view text, std::size_t from, Match& match) const {
  if (tokens_.empty()) return false;
  for (std::size_t begin = next_candidate(text, from); begin < text.size(); begin = next_candidate(text, begin + 1)) {
    std::int32_t node = first_[static_cast<unsigned char>(text[begin])];
    match.token = nullptr;
    for (std::size_t at = begin + 1; node > 0; ++at) {
      if (nodes_[node].token >= 0) match = {begin, at, &tokens_[nodes_[node].token]};
      if (at == text.size()) break;
      std::int32_t next = 0;
      for (const auto& [byte, child] : nodes_[node].edges)
        if (byte == text[at]) next = child;
      node = next;
    }
    if (match.token != nullptr) return true;
  }
  return false;
}

bool AddedTokenMatcher::accept(std::string_view text, std::size_t covered, Match& match) {
  const std::uint8_t* properties = char_properties();
  const auto at = [&](std::size_t i) { return properties[decode_utf8(text.data() + i).value]; };
  const AddedToken& token = *match.token;
  if (token.single_word) {
    if (match.begin > 0 && at(previous_code_point(text, match.begin)) & kWord) return false;
    if (match.end < text.size() && at(match.end) & kWord) return false;
  }
  if (token.lstrip) {
    while (match.begin > covered) {
      const std::size_t before = previous_code_point(text, match.begin);
      if ((at(before) & kClassMask) < kSpace) break;
      match.begin = before;
    }
    if (match.begin < covered) match.begin = covered;
  }
  if (token.rstrip)
    while (match.end < text.size() && (at(match.end) & kClassMask) >= kSpace)
      match.end += decode_utf8(text.data() + match.end).bytes;
  return true;
}

}  // namespace qft::tokenizer
