// Byte-pair encoding of one word. Internal to the module.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "char_table.h"
#include "merge_table.h"
#include "vocabulary.h"

namespace qft::tokenizer {

/// Buffers that a thread reuses for every word.
struct BpeScratch {
  struct Symbol {
    std::int32_t id, rank, previous, next;
  };
  std::vector<std::int32_t> ids, ranks;
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> heap;
  std::string content;
};

/// The model of a tokenizer.json with "type": "BPE" over the byte-level alphabet. Immutable.
class BpeModel {
 public:
  struct Options {
    bool ignore_merges = false;    ///< a word that is itself a token is not split
    bool byte_fallback = false;    ///< a byte without a token becomes its "<0xNN>" tokens
    bool fuse_unknown = false;     ///< neighbouring bytes without a token become one unknown token
    std::int32_t unknown = kNoId;  ///< if kNoId, such bytes are dropped
  };

  /// `merges` must be in order of rank. Keeps a reference to `vocabulary`.
  BpeModel(const Vocabulary& vocabulary, const std::vector<Merge>& merges, Options options);

  /// Appends the ids of one word, given as raw bytes. Takes O(n log n) time in its length.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<std::int32_t>& out) const;

  const MergeTable& merges() const { return table_; }
  /// Returns the token of a byte, or kNoId.
  std::int32_t byte_id(std::uint8_t byte) const { return byte_id_[byte]; }
  /// Tells where words may be cut before encoding; empty if words must stay whole.
  const JoinTable& joins() const { return joins_; }

 private:
  std::size_t symbols_of(std::string_view word, std::int32_t* ids, bool& only_bytes) const;
  std::size_t symbols_with_gaps(std::string_view word, std::int32_t* ids) const;
  int merge_short(std::int32_t* ids, std::int32_t* ranks, int count) const;
  void merge_long(BpeScratch& scratch, std::int32_t count, std::vector<std::int32_t>& out) const;

  const Vocabulary& vocabulary_;
  Options options_;
  MergeTable table_;
  std::vector<std::int32_t> merged_;                 ///< by rank
  std::array<std::int32_t, 256> byte_id_;            ///< kNoId if the vocabulary lacks the byte
  std::vector<std::vector<std::int32_t>> fallback_;  ///< by byte; empty if the byte has no fallback
  std::vector<std::int32_t> byte_pair_rank_;         ///< [256 * 256]
  CharTable chars_;
  JoinTable joins_;
};

}  // namespace qft::tokenizer
