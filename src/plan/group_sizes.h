// Sizes of the groups of a plan. Private to plan.
#pragma once

#include "qft/parallel/groups.h"

namespace qft::plan {

inline int slices_of(const parallel::Sharding& sharding) {
  return parallel::group_size(parallel::Purpose::slices, sharding);
}
inline int copies_of(const parallel::Sharding& sharding) {
  return parallel::group_size(parallel::Purpose::copies, sharding);
}

}  // namespace qft::plan
