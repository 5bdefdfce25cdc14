#include "qft/parallel/presence.h"

namespace qft::parallel {

std::int64_t Presence::run(const Action& action) {
  const bool brings = action.kind == ActionKind::gather || action.kind == ActionKind::gather_frozen ||
                      action.kind == ActionKind::acquire;
  if (!brings && action.kind != ActionKind::release) return 0;
  State& s = states_[static_cast<std::size_t>(action.target)];
  const GatheredBytes& unit = units_[static_cast<std::size_t>(action.target)];
  const std::int64_t before = s.here.total();
  if (action.kind == ActionKind::acquire) ++s.held;
  if (action.kind == ActionKind::release && --s.held == 0) s.here = {};
  if (brings) s.here.frozen = unit.frozen;
  if (brings && action.kind != ActionKind::gather_frozen) s.here.trainable = unit.trainable;
  here_ += s.here.total() - before;
  return brings ? s.here.total() - before : 0;
}

}  // namespace qft::parallel
