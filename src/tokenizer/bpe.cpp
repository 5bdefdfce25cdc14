#include "bpe.h"

#include "qft/core/error.h"

#include <algorithm>
#include <functional>

#include "unicode.h"

namespace qft::tokenizer {
namespace {

/// Up to this many symbols, a linear scan for the best pair is faster than a heap.
constexpr int kShortWord = 112;
/// Bits for a position in a short word; the rank is above them in one number.
constexpr int kPositionBits = 7;
constexpr int kLanes = 16;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define QFT_SIMD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define QFT_SIMD_CLONES
#endif

/// Returns the smallest of `blocks` times kLanes numbers.
QFT_SIMD_CLONES std::int32_t smallest(const std::int32_t* values, int blocks) {
  std::int32_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = values[i];
  for (int block = 1; block < blocks; ++block)
    for (int i = 0; i < kLanes; ++i) lanes[i] = std::min(lanes[i], values[block * kLanes + i]);
  std::int32_t best = lanes[0];
  for (int i = 1; i < kLanes; ++i) best = std::min(best, lanes[i]);
  return best;
}

}  // namespace

BpeModel::BpeModel(const Vocabulary& vocabulary, const std::vector<Merge>& merges, Options options)
    : vocabulary_(vocabulary), options_(options), table_(merges.size()), fallback_(256), byte_pair_rank_(65536) {
  require(merges.size() < MergeTable::kMaxMerges, "model.merges has {} entries, more than the {} that are supported",
          merges.size(), MergeTable::kMaxMerges);
  merged_.reserve(merges.size());
  for (const Merge& merge : merges) {
    table_.insert(merge.left, merge.right, static_cast<std::uint32_t>(merged_.size()));
    merged_.push_back(merge.merged);
  }
  for (int b = 0; b < 256; ++b) {
    std::string character;
    append_utf8(byte_level::code_point(static_cast<std::uint8_t>(b)), character);
    byte_id_[b] = vocabulary.find_model(character);
    if (byte_id_[b] != kNoId || !options.byte_fallback) continue;
    for (const char c : character) {
      const std::int32_t id = vocabulary.find_model(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c)));
      fallback_[b].push_back(id);
    }
    if (std::find(fallback_[b].begin(), fallback_[b].end(), kNoId) != fallback_[b].end()) fallback_[b].clear();
  }
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b)
      byte_pair_rank_[a << 8 | b] =
          byte_id_[a] == kNoId || byte_id_[b] == kNoId ? MergeTable::kNone : table_.find(byte_id_[a], byte_id_[b]);
  chars_ = CharTable(vocabulary, merges, table_, byte_id_);
  const bool gaps = std::find(byte_id_.begin(), byte_id_.end(), kNoId) != byte_id_.end();
  if (!gaps && !options.ignore_merges) joins_ = JoinTable(vocabulary, merges);
}

void BpeModel::encode(std::string_view word, BpeScratch& scratch, std::vector<std::int32_t>& out) const {
  if (options_.ignore_merges) {
    scratch.content.clear();
    byte_level::append_encoded(word, scratch.content);
    if (const std::int32_t id = vocabulary_.find_model(scratch.content); id != kNoId) return out.push_back(id);
  }
  if (scratch.ids.size() < 2 * word.size()) {  // a byte has at most two fallback tokens
    scratch.ids.resize(2 * word.size() + 64);
    scratch.ranks.resize(scratch.ids.size());
  }
  std::int32_t *ids = scratch.ids.data(), *ranks = scratch.ranks.data();
  bool only_bytes = true;
  const auto count = static_cast<int>(symbols_of(word, ids, only_bytes));
  if (count < 2) {  // 0 if the bytes have no token
    out.insert(out.end(), ids, ids + count);
    return;
  }
  if (count > kShortWord) return merge_long(scratch, count, out);
  const auto* bytes = reinterpret_cast<const unsigned char*>(word.data());
  if (only_bytes)
    for (int i = 0; i + 1 < count; ++i) ranks[i] = byte_pair_rank_[bytes[i] << 8 | bytes[i + 1]];
  else
    for (int i = 0; i + 1 < count; ++i) ranks[i] = table_.find(ids[i], ids[i + 1]);
  out.insert(out.end(), ids, ids + merge_short(ids, ranks, count));
}

/// Writes the symbols with which merging begins: whole characters if that is exact, otherwise bytes. Returns their number.
std::size_t BpeModel::symbols_of(std::string_view word, std::int32_t* ids, bool& only_bytes) const {
  std::int32_t* out = ids;
  for (std::size_t i = 0; i < word.size();) {
    std::uint32_t bytes = 1;
    if (static_cast<unsigned char>(word[i]) >= 0x80) {
      const CodePoint c = decode_utf8(word.data() + i);
      if (const std::int32_t id = chars_.find(word, i, c.value, c.bytes); id != kNoId) {
        *out++ = id;
        only_bytes = false;
        i += c.bytes;
        continue;
      }
      bytes = c.bytes;
    }
    for (; bytes > 0; --bytes, ++i) {
      *out = byte_id_[static_cast<unsigned char>(word[i])];
      if (*out++ == kNoId) [[unlikely]] {
        only_bytes = false;
        return symbols_with_gaps(word, ids);
      }
    }
  }
  return static_cast<std::size_t>(out - ids);
}

/// Handles a word with bytes that have no token. As in HF, fallback tokens do not end a run of unknown bytes: the run's unknown
/// token follows them.
std::size_t BpeModel::symbols_with_gaps(std::string_view word, std::int32_t* ids) const {
  std::int32_t* out = ids;
  bool unknown_run = false;
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte_id_[byte] != kNoId) {
      if (unknown_run) *out++ = options_.unknown;
      unknown_run = false;
      *out++ = byte_id_[byte];
    } else if (!fallback_[byte].empty()) {
      out = std::copy(fallback_[byte].begin(), fallback_[byte].end(), out);
    } else if (options_.unknown != kNoId) {
      if (unknown_run && !options_.fuse_unknown) *out++ = options_.unknown;
      unknown_run = true;
    }
  }
  if (unknown_run) *out++ = options_.unknown;
  return static_cast<std::size_t>(out - ids);
}

/// Merges in place, the best pair first, and returns the number of remaining symbols. A pair's key is its rank, with the
/// position of its left symbol in the low bits: the smallest key is the best pair and, among equal ranks, the leftmost.
int BpeModel::merge_short(std::int32_t* ids, std::int32_t* ranks, int count) const {
  alignas(64) std::int32_t keys[kShortWord];
  std::uint8_t next[kShortWord + 1], previous[kShortWord + 1];
  const auto key = [](std::int32_t rank, int at) {
    return rank == MergeTable::kNone ? MergeTable::kNone : rank << kPositionBits | at;
  };
  for (int i = 0; i < count; ++i) {
    keys[i] = i + 1 < count ? key(ranks[i], i) : MergeTable::kNone;
    next[i] = static_cast<std::uint8_t>(i + 1);
    previous[i] = static_cast<std::uint8_t>(i - 1);
  }
  const int blocks = (count + kLanes - 1) / kLanes;
  std::fill(keys + count, keys + blocks * kLanes, MergeTable::kNone);
  for (;;) {
    const std::int32_t best = smallest(keys, blocks);
    if (best == MergeTable::kNone) break;
    const int left = best & ((1 << kPositionBits) - 1);
    const int right = next[left], after = next[right];
    ids[left] = merged_[best >> kPositionBits];
    next[left] = static_cast<std::uint8_t>(after);
    previous[after] = static_cast<std::uint8_t>(left);
    keys[right] = MergeTable::kNone;
    keys[left] = after < count ? key(table_.find(ids[left], ids[after]), left) : MergeTable::kNone;
    if (left > 0) keys[previous[left]] = key(table_.find(ids[previous[left]], ids[left]), previous[left]);
  }
  int left = 0;
  for (int i = 0; i < count; i = next[i]) ids[left++] = ids[i];
  return left;
}

/// Merges with a doubly linked list of symbols and a heap of (rank, position). A heap entry is stale if the rank at its
/// position has changed.
void BpeModel::merge_long(BpeScratch& scratch, std::int32_t count, std::vector<std::int32_t>& out) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.resize(count);
  heap.clear();
  const auto entry = [&](std::int32_t at) {
    return static_cast<std::uint64_t>(symbols[at].rank) << 32 | static_cast<std::uint32_t>(at);
  };
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t rank = i + 1 < count ? table_.find(scratch.ids[i], scratch.ids[i + 1]) : MergeTable::kNone;
    symbols[i] = {scratch.ids[i], rank, i - 1, i + 1 < count ? i + 1 : -1};
    if (rank != MergeTable::kNone) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto refresh = [&](std::int32_t at) {
    BpeScratch::Symbol& s = symbols[at];
    s.rank = s.next < 0 ? MergeTable::kNone : table_.find(s.id, symbols[s.next].id);
    if (s.rank == MergeTable::kNone) return;
    heap.push_back(entry(at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<std::int32_t>(top & 0xFFFFFFFF);
    BpeScratch::Symbol& left = symbols[at];
    if (left.rank != static_cast<std::int32_t>(top >> 32)) continue;
    BpeScratch::Symbol& right = symbols[left.next];
    left.id = merged_[left.rank];
    left.next = right.next;
    right.rank = MergeTable::kNone;
    if (left.next >= 0) symbols[left.next].previous = at;
    refresh(at);
    if (left.previous >= 0) refresh(left.previous);
  }
  for (std::int32_t i = 0; i >= 0 && i < count; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace qft::tokenizer
