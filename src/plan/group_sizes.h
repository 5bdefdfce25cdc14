// Sizes of the groups that parallel::Groups makes of a sharding. Private to plan.
#pragma once

#include "qft/parallel/strategy.h"

namespace qft::plan {

/// Ranks of Groups::slices(), which share one copy of the weights: context ranks hold slices too.
inline int slices_of(const parallel::Sharding& s) {
  return s.strategy.sharded() ? s.shard_ranks * s.context_ranks : 1;
}
/// Ranks of Groups::copies(), which add up the gradients of the same slice.
inline int copies_of(const parallel::Sharding& s) {
  return s.strategy.sharded() ? s.replicas : s.replicas * s.context_ranks;
}

}  // namespace qft::plan
