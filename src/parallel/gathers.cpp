// Inserts prefetches into an action list by simulating which units are held and which are prefetched.
#include "qft/core/error.h"
#include "qft/parallel/action.h"

namespace qft::parallel {
namespace {

class PrefetchPlanner {
 public:
  PrefetchPlanner(const ActionList& list, const std::vector<GatheredBytes>& units, std::int64_t prefetch_budget)
      : list_(list),
        units_(units),
        prefetch_budget_(prefetch_budget),
        trains_(!list.empty() && list.back().kind == ActionKind::step),
        states_(units.size()) {}

  ActionList run() {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const Action& action = list_[i];
      const bool weights = action.kind == ActionKind::acquire || action.kind == ActionKind::release;
      if (!weights || bytes(action.target) == 0) {
        out_.push_back(action);
        continue;
      }
      if (next_ <= i) next_ = i;
      if (action.kind == ActionKind::acquire) {
        acquire(action, i);
      } else {
        release(action);
      }
      prefetch();
    }
    return std::move(out_);
  }

 private:
  struct State {
    int held = 0;
    int prefetched = 0;            ///< number of later acquires that the prefetch serves
    bool dropped_release = false;  ///< the last release was dropped, so the next acquire must be dropped too
    bool prefetched_next = false;  ///< prefetched for the next step
  };
  State& state(int unit) { return states_[static_cast<std::size_t>(unit)]; }
  std::int64_t bytes(int unit) const { return units_[static_cast<std::size_t>(unit)].total(); }

  void acquire(const Action& action, std::size_t index) {
    State& s = state(action.target);
    if (index >= next_) {  // not prefetched: the budget was used up
      next_ = index + 1;
      if (s.held == 0) out_.push_back(gather_for(action, ActionKind::gather));
    } else if (--s.prefetched == 0) {
      waiting_ -= bytes(action.target);
    }
    ++s.held;
    if (s.dropped_release) {
      s.dropped_release = false;
    } else {
      out_.push_back(action);
    }
  }

  void release(const Action& action) {
    State& s = state(action.target);
    QFT_ASSERT(s.held > 0, "unit {} is released but not held", action.target);
    if (--s.held == 0 && s.prefetched > 0) {
      s.dropped_release = true;
    } else {
      out_.push_back(action);
    }
  }

  static Action gather_for(const Action& acquire, ActionKind kind) {
    return {.kind = kind, .target = acquire.target, .purpose = acquire.purpose};
  }

  bool fits(std::int64_t more) const { return waiting_ == 0 || waiting_ + more <= prefetch_budget_; }

  void prefetch() {
    for (; next_ < list_.size(); ++next_) {
      const Action& ahead = list_[next_];
      if (ahead.kind != ActionKind::acquire || bytes(ahead.target) == 0) continue;
      State& s = state(ahead.target);
      if (s.prefetched == 0) {
        if (!fits(bytes(ahead.target))) return;
        waiting_ += bytes(ahead.target);
        if (s.held == 0) out_.push_back(gather_for(ahead, ActionKind::gather));
      }
      ++s.prefetched;
    }
    if (trains_) prefetch_next_step();
  }

  /// Prefetches frozen weights, which no step changes, in the order of their first use. Units still in use wait for their
  /// release.
  void prefetch_next_step() {
    for (; next_step_ < list_.size(); ++next_step_) {
      const Action& ahead = list_[next_step_];
      if (ahead.kind != ActionKind::acquire) continue;
      State& s = state(ahead.target);
      const std::int64_t frozen = units_[static_cast<std::size_t>(ahead.target)].frozen;
      if (s.prefetched_next || frozen == 0) continue;
      if (s.held > 0 || s.prefetched > 0 || !fits(frozen)) return;
      waiting_ += frozen;
      s.prefetched_next = true;
      out_.push_back(gather_for(ahead, ActionKind::gather_frozen));
    }
  }

  const ActionList& list_;
  const std::vector<GatheredBytes>& units_;
  std::int64_t prefetch_budget_;
  bool trains_;  ///< a list of the same kind follows: its first gathers can be prefetched at the end of this one
  std::vector<State> states_;
  std::size_t next_ = 0;       ///< the first action of the list not yet examined for prefetching
  std::size_t next_step_ = 0;  ///< the same index in the list that follows
  std::int64_t waiting_ = 0;   ///< bytes of units that are prefetched but not acquired yet
  ActionList out_;
};

}  // namespace

ActionList insert_prefetches(const ActionList& list, const std::vector<GatheredBytes>& units, std::int64_t prefetch_budget) {
  return PrefetchPlanner(list, units, prefetch_budget).run();
}

}  // namespace qft::parallel
