#include "char_table.h"

#include <algorithm>
#include <unordered_map>

#include "unicode.h"

namespace qft::tokenizer {
/// Merges that join a part of a character to text beyond its first or last byte, indexed by the bytes of that part.
struct CharTable::Rules {
  struct Rule {
    std::int32_t rank;
    std::uint64_t neighbour;
  };
  std::unordered_map<std::string_view, std::vector<Rule>> before, after;

  Rules(const Vocabulary& vocabulary, const std::vector<Merge>& merges) {
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string_view left = vocabulary.decoded(merges[rank].left);
      const std::string_view right = vocabulary.decoded(merges[rank].right);
      if (left.empty() || right.empty()) continue;
      const auto r = static_cast<std::int32_t>(rank);
      if (!is_continuation(right[0]) && right.size() < char_bytes(right[0]))
        before[right].push_back({r, neighbour_bit(left.back())});
      if (left.size() < 4 && std::all_of(left.begin(), left.end(), is_continuation) && !is_continuation(right[0]))
        after[left].push_back({r, neighbour_bit(right[0])});
    }
  }

  static std::uint64_t up_to(std::int32_t rank, const decltype(before)& rules, std::string_view part) {
    std::uint64_t mask = 0;
    if (const auto it = rules.find(part); it != rules.end())
      for (const Rule& rule : it->second)
        if (rule.rank <= rank) mask |= rule.neighbour;
    return mask;
  }
};

CharTable::CharTable(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const MergeTable& table,
                     const std::array<std::int32_t, 256>& byte_ids) {
  if (!in_order(merges, vocabulary.size())) return;
  const Rules rules(vocabulary, merges);
  index_.assign(0x10000, 0);
  entries_.emplace_back();
  for (const Merge& merge : merges) {
    const std::string_view bytes = vocabulary.decoded(merge.merged);
    if (bytes.size() < 2 || bytes.size() > 3 || is_continuation(bytes[0]) || char_bytes(bytes[0]) != bytes.size()) continue;
    if (std::all_of(bytes.begin() + 1, bytes.end(), is_continuation) && entries_.size() <= UINT16_MAX)
      add(vocabulary, merge.merged, rules, table, merges, byte_ids);
  }
}

void CharTable::add(const Vocabulary& vocabulary, std::int32_t id, const Rules& rules, const MergeTable& table,
                    const std::vector<Merge>& merges, const std::array<std::int32_t, 256>& byte_ids) {
  const std::string_view bytes = vocabulary.decoded(id);
  std::vector<std::int32_t> symbols;
  for (const char byte : bytes) symbols.push_back(byte_ids[static_cast<unsigned char>(byte)]);
  if (std::find(symbols.begin(), symbols.end(), kNoId) != symbols.end()) return;
  std::int32_t last = -1;
  while (symbols.size() > 1) {
    std::int32_t best = MergeTable::kNone;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
      if (const std::int32_t rank = table.find(symbols[i], symbols[i + 1]); rank < best) best = rank, at = i;
    if (best == MergeTable::kNone) return;
    symbols[at] = merges[best].merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    last = std::max(last, best);
  }
  if (symbols[0] != id) return;
  Entry entry{id, 0, 0};
  for (std::size_t k = 1; k < bytes.size(); ++k) {
    entry.bad_left |= Rules::up_to(last, rules.before, bytes.substr(0, k));
    entry.bad_right |= Rules::up_to(last, rules.after, bytes.substr(k));
  }
  const std::uint32_t code_point = decode_utf8(bytes.data()).value;
  if (index_[code_point] == 0) entries_.emplace_back();
  if (index_[code_point] == 0) index_[code_point] = static_cast<std::uint16_t>(entries_.size() - 1);
  entries_[index_[code_point]] = entry;
}

}  // namespace qft::tokenizer
