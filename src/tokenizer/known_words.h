// The words that need no merging, from the start. Internal to the module.
#pragma once

#include <vector>

#include "bpe.h"
#include "merge_table.h"
#include "vocabulary.h"
#include "word_cache.h"

namespace qft::tokenizer {

/// The tokens that are encoded as themselves, with their ids: most words of any text. Where a set is full,
/// those of the first merges are in it.
ShortWords known_words(const BpeModel& bpe, const Vocabulary& vocabulary, const std::vector<Merge>& merges);

}  // namespace qft::tokenizer
