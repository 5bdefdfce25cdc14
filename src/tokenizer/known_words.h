// Words that need no merging. Internal to the module.
#pragma once

#include <vector>

#include "bpe.h"
#include "merge_table.h"
#include "vocabulary.h"
#include "word_cache.h"

namespace qft::tokenizer {

/// Returns the tokens that encode as themselves, with their ids: most words of any text. A full set keeps the tokens of the first
/// merges.
ShortWords known_words(const BpeModel& bpe, const Vocabulary& vocabulary, const std::vector<Merge>& merges);

}  // namespace qft::tokenizer
