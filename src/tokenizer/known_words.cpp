#include "known_words.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <simdjson.h>

namespace qft::tokenizer {
namespace {

constexpr std::size_t kBatch = 32;

/// Returns table bits for all tokens, with a quarter of the table free.
int table_bits(const Vocabulary& vocabulary) {
  return std::bit_width(static_cast<std::uint32_t>(vocabulary.model_count()) * 5 / 4 + 1);
}

/// Tells whether encoding the bytes of a token gives that token. Suppose that the merges are in order and one merge makes the
/// token from two sides that encode as themselves. Then it does, unless a pair across their boundary is merged earlier. These
/// pairs are known: at each merge step, the last part of the left side and the first part of the right side. This check decides
/// nearly all tokens; the others are encoded.
class WholeTokens {
 public:
  WholeTokens(const BpeModel& bpe, const Vocabulary& vocabulary, const std::vector<Merge>& merges)
      : bpe_(bpe), vocabulary_(vocabulary), nodes_(vocabulary.size()), proved_(vocabulary.size(), false) {
    for (int byte = 0; byte < 256; ++byte)
      if (const std::int32_t id = bpe.byte_id(static_cast<std::uint8_t>(byte)); id != kNoId) proved_[id] = true;
    if (!in_order(merges, vocabulary.size())) return;
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const auto [left, right, merged] = merges[rank];
      Node& node = nodes_[merged];
      if (proved_[merged] && !(node.left == left && node.right == right)) continue;  // a repeated pair keeps its last rank
      proved_[merged] = proved_[left] && proved_[right] && !crossed(left, right);
      node = {left, right, static_cast<std::int32_t>(rank)};
    }
  }

  /// The token's bytes must be valid UTF-8.
  bool operator()(std::int32_t id) {
    if (proved_[id]) return true;
    ids_.clear();
    bpe_.encode(vocabulary_.decoded(id), scratch_, ids_);
    return ids_.size() == 1 && ids_[0] == id;
  }

 private:
  static constexpr std::int32_t kUnmade = -1;

  /// A token with the merge that makes it.
  struct Node {
    std::int32_t left = kNoId, right = kNoId, rank = kUnmade;
  };

  /// True if a pair across the boundary of `left` and `right` may be merged before the two are complete.
  bool crossed(std::int32_t left, std::int32_t right) const {
    for (;;) {
      const Node &before = nodes_[left], &behind = nodes_[right];
      const std::int32_t last = std::max(before.rank, behind.rank);
      if (last == kUnmade) return false;
      (before.rank == last ? left : right) = before.rank == last ? before.right : behind.left;
      if (bpe_.merges().find(left, right) <= last) return true;
    }
  }

  const BpeModel& bpe_;
  const Vocabulary& vocabulary_;
  std::vector<Node> nodes_;
  std::vector<bool> proved_;
  BpeScratch scratch_;
  std::vector<std::int32_t> ids_;
};

}  // namespace

ShortWords known_words(const BpeModel& bpe, const Vocabulary& vocabulary, const std::vector<Merge>& merges) {
  ShortWords known(table_bits(vocabulary));
  WholeTokens whole(bpe, vocabulary, merges);
  // Tokens are batched, so that their prefetched table entries arrive meanwhile.
  std::vector<std::pair<ShortWords::Key, std::int32_t>> batch;
  const auto insert_batch = [&] {
    for (const auto& [key, id] : batch) known.insert(key, {&id, 1});
    batch.clear();
  };
  const auto add = [&](std::int32_t id) {
    const std::string_view bytes = vocabulary.decoded(id);
    if (bytes.empty() || bytes.size() > ShortWords::Key::kMaxBytes) return;
    if (!simdjson::validate_utf8(bytes.data(), bytes.size()) || !whole(id)) return;
    batch.emplace_back(ShortWords::Key::of(bytes, bytes.data() + bytes.size()), id);
    known.prefetch(batch.back().first);
    if (batch.size() == kBatch) insert_batch();
  };
  for (auto merge = merges.rbegin(); merge != merges.rend(); ++merge) add(merge->merged);
  for (int byte = 0; byte < 128; ++byte)
    if (const std::int32_t id = bpe.byte_id(static_cast<std::uint8_t>(byte)); id != kNoId) add(id);
  insert_batch();
  return known;
}

}  // namespace qft::tokenizer
