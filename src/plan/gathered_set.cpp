#include "gathered_set.h"

namespace qft::plan {

std::int64_t GatheredSet::run(const parallel::Action& action) {
  const bool brings = action.kind == parallel::ActionKind::gather || action.kind == parallel::ActionKind::gather_frozen ||
                      action.kind == parallel::ActionKind::acquire;
  if (!brings && action.kind != parallel::ActionKind::release) return 0;
  State& s = states_[static_cast<std::size_t>(action.target)];
  const parallel::GatheredBytes& unit = units_[static_cast<std::size_t>(action.target)];
  const std::int64_t before = s.here.total();
  if (action.kind == parallel::ActionKind::acquire) {
    ++s.held;
    s.here.decoded = unit.decoded;
  }
  if (action.kind == parallel::ActionKind::release && --s.held == 0) s.here = {};
  if (brings) s.here.frozen = unit.frozen;
  if (brings && action.kind != parallel::ActionKind::gather_frozen) s.here.trainable = unit.trainable;
  here_ += s.here.total() - before;
  return brings ? s.here.total() - before : 0;
}

}  // namespace qft::plan
