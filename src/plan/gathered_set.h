// Tracks the gathered weights on a rank, action by action.
#pragma once

#include "qft/parallel/action.h"

#include <cstdint>
#include <vector>

namespace qft::plan {

/// The units that an action list has gathered so far.
class GatheredSet {
 public:
  /// `units`: bytes of each unit, counted as the caller likes (the whole gathered unit, or only transferred bytes). Must outlive
  /// this.
  explicit GatheredSet(const std::vector<parallel::GatheredBytes>& units) : units_(units), states_(units.size()) {}

  /// Applies an action. Returns the bytes that a gather or acquire adds.
  parallel::GatheredBytes run(const parallel::Action& action);
  /// Returns the bytes that are gathered now.
  std::int64_t here() const { return here_; }

 private:
  struct State {
    int held = 0;
    parallel::GatheredBytes here;
  };
  const std::vector<parallel::GatheredBytes>& units_;
  std::vector<State> states_;
  std::int64_t here_ = 0;
};

}  // namespace qft::plan
