// Which gathered weights an action list has here, action by action.
#pragma once

#include "qft/parallel/action.h"

#include <cstdint>
#include <vector>

namespace qft::plan {

class GatheredSet {
 public:
  /// `units`: bytes of each unit, as the caller wants to count them (the whole gathered unit, or what is transferred). Must
  /// outlive this.
  explicit GatheredSet(const std::vector<parallel::GatheredBytes>& units) : units_(units), states_(units.size()) {}

  /// What the action brings, of a gather or acquire: what is not here yet.
  parallel::GatheredBytes run(const parallel::Action& action);
  /// Bytes that are here now.
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
