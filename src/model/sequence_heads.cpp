#include "qft/model/sequence_heads.h"

#include "qft/core/error.h"

namespace qft::model {
namespace {

/// Returns the largest number of heads into which `heads` divides evenly such that one key head serves each run. A key head
/// serves `group` heads.
std::int64_t longest_run(const Extent& heads, std::int64_t group) {
  const auto fits = [&](std::int64_t run) {
    if (heads.count % run != 0) return false;
    for (std::int64_t head = heads.begin; head < heads.end(); head += run)
      if (head / group != (head + run - 1) / group) return false;
    return true;
  };
  std::int64_t run = heads.count;
  while (!fits(run)) --run;
  return run;
}

}  // namespace

SequenceShare SequenceShare::split(std::int64_t heads, std::int64_t key_heads, Share context) {
  if (context.ranks == 1) return {};
  QFT_ASSERT(heads >= context.ranks && heads % key_heads == 0, "{} heads of {} key heads for {} context ranks", heads, key_heads,
             context.ranks);
  SequenceShare share{.rank = context.rank};
  const std::int64_t group = heads / key_heads;
  std::int64_t runs = 0;
  for (int rank = 0; rank < context.ranks; ++rank) {
    const Extent mine = model::split(heads, 1, {rank, context.ranks}, "heads");
    const std::int64_t run = longest_run(mine, group);
    SequenceHeads& of_rank = share.ranks.emplace_back(SequenceHeads{mine, {}});
    for (std::int64_t head = mine.begin; head < mine.end(); head += run) of_rank.key_heads.push_back(head / group);
    runs += of_rank.num_key_heads();
  }
  share.repeats_keys = runs > key_heads;
  return share;
}

std::int64_t SequenceShare::columns_of_all(std::int64_t width, std::int64_t key_width) const {
  std::int64_t columns = 0;
  for (const SequenceHeads& of_rank : ranks) columns += of_rank.columns(width, false) + of_rank.columns(key_width, true);
  return columns;
}

}  // namespace qft::model
