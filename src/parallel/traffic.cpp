#include "qft/parallel/traffic.h"

#include <c10/core/ScalarType.h>

#include "split_buffer.h"

namespace qft::parallel {
namespace {

/// The slices of the other ranks.
std::uint64_t others(std::int64_t n, int ranks, at::ScalarType type) {
  return static_cast<std::uint64_t>(Division::share(n, ranks) * (ranks - 1)) * c10::elementSize(type);
}

/// Whose weights are here.
class Presence {
 public:
  Presence(const model::ModelSpec& spec, at::ScalarType type, int ranks)
      : spec_(spec), type_(type), ranks_(ranks), units_(spec.units.size()) {}

  /// Bytes that the action brings.
  std::uint64_t run(const Action& action) {
    const bool brings = action.kind == ActionKind::gather || action.kind == ActionKind::gather_frozen ||
                        action.kind == ActionKind::acquire;
    if (!brings && action.kind != ActionKind::release) return 0;
    State& s = units_[static_cast<std::size_t>(action.target)];
    if (action.kind == ActionKind::acquire) ++s.held;
    if (action.kind == ActionKind::release && --s.held == 0) s.frozen = s.trainable = false;
    if (!brings) return 0;
    const auto& unit = spec_.units[static_cast<std::size_t>(action.target)];
    std::uint64_t bytes = s.frozen ? 0 : others(unit.frozen_numel, ranks_, type_);
    s.frozen = true;
    if (action.kind == ActionKind::gather_frozen) return bytes;
    if (!s.trainable) bytes += others(unit.trainable_numel, ranks_, type_);
    s.trainable = true;
    return bytes;
  }

 private:
  struct State {
    int held = 0;
    bool frozen = false, trainable = false;
  };
  const model::ModelSpec& spec_;
  at::ScalarType type_;
  int ranks_;
  std::vector<State> units_;
};

}  // namespace

Traffic step_traffic(const ActionList& list, const model::ModelSpec& spec, const Strategy& strategy,
                     const optim::Precision& precision, int ranks) {
  Traffic t;
  const at::ScalarType sums = wide(precision.grad);
  Presence presence(spec, precision.compute, ranks);
  for (const Action& action : list) presence.run(action);  // the step before leaves frozen weights on their way
  for (const Action& action : list) {
    if (strategy.weights) t.all_gather += presence.run(action);
    if (action.kind == ActionKind::reduce)
      t.reduce_scatter += others(spec.units[static_cast<std::size_t>(action.target)].trainable_numel, ranks, sums);
  }
  if (!strategy.weights)
    for (const auto& unit : spec.units) t.all_gather += others(unit.trainable_numel, ranks, precision.compute);
  return t;
}

}  // namespace qft::parallel
