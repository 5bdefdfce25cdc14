#include "qft/model/share.h"

#include "qft/core/error.h"

#include <algorithm>

namespace qft::model {
namespace {

std::int64_t granules_in(std::int64_t extent, std::int64_t granule) {
  return (extent + granule - 1) / granule;
}

Extent times(const Extent& extent, std::int64_t width) {
  return {extent.begin * width, extent.count * width};
}

/// The cut in which `mine` is this rank's piece, and `first` that of rank 0.
Cut one_piece(std::int64_t whole, const Extent& mine, const Extent& first, int holders) {
  return {whole, {mine}, first.count, holders};
}

}  // namespace

Extent split(std::int64_t extent, std::int64_t granule, Share share, const std::string& what) {
  QFT_ASSERT(share.rank >= 0 && share.rank < share.ranks && granule > 0, "rank {} of {} in granules of {}", share.rank,
             share.ranks, granule);
  const std::int64_t granules = granules_in(extent, granule), each = granules / share.ranks, more = granules % share.ranks;
  if (each == 0)
    fail_config("tensor_parallel: {} ranks cannot share {}, {} in granules of {}: at most {} can", share.ranks, what, extent,
                granule, granules);
  const auto begin_of = [&](std::int64_t rank) { return std::min((rank * each + std::min(rank, more)) * granule, extent); };
  const std::int64_t begin = begin_of(share.rank);
  return {begin, begin_of(share.rank + 1) - begin};
}

std::int64_t Cut::count() const {
  std::int64_t n = 0;
  for (const Extent& piece : pieces) n += piece.count;
  return n;
}

Cut Cut::in_blocks(std::int64_t block) const {
  Cut blocks{whole / block, {}, largest / block, holders};
  for (const Extent& piece : pieces) {
    QFT_ASSERT(piece.begin % block == 0 && piece.count % block == 0, "[{}, {}) cuts blocks of {}", piece.begin, piece.end(),
               block);
    blocks.pieces.push_back({piece.begin / block, piece.count / block});
  }
  return blocks;
}

Cut Cut::none(std::int64_t whole) {
  return {whole, {{0, whole}}, whole, 0};
}

Cut Cut::split(std::int64_t whole, std::int64_t granule, Share share, const std::string& what) {
  if (share.ranks == 1) return none(whole);
  return one_piece(whole, model::split(whole, granule, share, what), model::split(whole, granule, {0, share.ranks}, what), 1);
}

Cut Cut::joined(const std::vector<Cut>& cuts) {
  Cut all{0, {}, 0, cuts.front().holders};
  for (const Cut& cut : cuts) {
    QFT_ASSERT(cut.holders == all.holders, "{} and {} ranks hold the same pieces", cut.holders, all.holders);
    for (const Extent& piece : cut.pieces) all.pieces.push_back({all.whole + piece.begin, piece.count});
    all.whole += cut.whole;
    all.largest += cut.largest;
  }
  return all.is_cut() ? all : none(all.whole);
}

bool Heads::fits(int ranks) const {
  if (ranks == 1) return true;
  if (key_heads >= ranks) return granules_in(key_heads, granule) >= ranks;
  return head_granule > 0 && key_heads > 0 && ranks % key_heads == 0 &&
         granules_in(per_key_head(), head_granule) >= ranks / key_heads;
}

HeadShare Heads::split(Share share) const {
  if (share.ranks == 1) return {{0, heads}, {0, key_heads}};
  if (!fits(share.ranks)) {
    int most = share.ranks;
    while (most > 1 && !fits(most)) --most;
    fail_config("tensor_parallel: {} ranks cannot share {}: {} can", share.ranks, what, most);
  }
  const std::int64_t per = per_key_head();
  if (key_heads >= share.ranks) {
    const Extent keys = model::split(key_heads, granule, share, what);
    return {times(keys, per), keys};
  }
  const int holders = share.ranks / static_cast<int>(key_heads), key = share.rank / holders, holder = share.rank % holders;
  const Extent part = model::split(per, head_granule, {holder, holders}, what);
  return {{key * per + part.begin, part.count}, {key, 1}, holders, holder};
}

std::int64_t Heads::fewest(int ranks) const {
  std::int64_t least = heads;
  for (int rank = 0; rank < ranks; ++rank) least = std::min(least, split({rank, ranks}).heads.count);
  return least;
}

Cut Heads::cut(Share share, std::int64_t width) const {
  if (share.ranks == 1) return Cut::none(heads * width);
  return one_piece(heads * width, times(split(share).heads, width), times(split({0, share.ranks}).heads, width), 1);
}

Cut Heads::key_cut(Share share, std::int64_t width) const {
  if (share.ranks == 1) return Cut::none(key_heads * width);
  const HeadShare mine = split(share);
  return one_piece(key_heads * width, times(mine.key_heads, width), times(split({0, share.ranks}).key_heads, width),
                   mine.holders);
}

}  // namespace qft::model
