#include "gathered_set.h"

namespace qft::plan {

parallel::GatheredBytes GatheredSet::run(const parallel::Action& action) {
  const bool brings = action.kind == parallel::ActionKind::gather || action.kind == parallel::ActionKind::gather_frozen ||
                      action.kind == parallel::ActionKind::acquire;
  if (!brings && action.kind != parallel::ActionKind::release) return {};
  State& s = states_[static_cast<std::size_t>(action.target)];
  const parallel::GatheredBytes& unit = units_[static_cast<std::size_t>(action.target)];
  const parallel::GatheredBytes before = s.here;
  if (action.kind == parallel::ActionKind::acquire) {
    ++s.held;
    s.here.decoded = unit.decoded;
  }
  if (action.kind == parallel::ActionKind::release && --s.held == 0) s.here = {};
  if (brings) s.here.frozen = unit.frozen;
  if (brings && action.kind != parallel::ActionKind::gather_frozen) s.here.trainable = unit.trainable;
  here_ += s.here.total() - before.total();
  if (!brings) return {};
  return {s.here.frozen - before.frozen, s.here.trainable - before.trainable, s.here.decoded - before.decoded};
}

}  // namespace qft::plan
