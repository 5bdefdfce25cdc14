// Which experts of a layer cross the wire, where weights are gathered: those that the micro-batches of a group use, if these are
// few. Private to parallel.
#pragma once

#include "qft/model/spec.h"
#include "qft/parallel/action.h"
#include "qft/parallel/ranges.h"

#include <cstdint>
#include <span>
#include <vector>

namespace qft::parallel {

/// Of one unit. A forward pass gathers its experts as routers ask for them, and the backward pass after it the same ones ahead;
/// or both gather all experts ahead, where the pass before used more than half of them: then little is saved, and the way across
/// could no longer be hidden behind the computation. A step in which half or fewer were used ends that. The same on every rank,
/// as long as what it is told is.
class UsedExperts {
 public:
  UsedExperts() = default;
  /// Empty for a layer without experts, and where they are quantised.
  UsedExperts(const model::ModelSpec& spec, const model::UnitSpec& unit);

  bool empty() const { return count_ == 0; }
  /// The most elements of a buffer of `n` in all that cross apart: of the experts half.
  std::int64_t most(std::int64_t n) const;

  /// A forward pass of the unit starts.
  void start();
  /// Whether experts are gathered as routers ask for them.
  bool as_asked() const { return as_asked_; }
  /// What a micro-batch of this rank uses, a byte an expert, to be united over the ranks. `begins`: where experts' rows begin
  /// (ops::ExpertRows), or nothing.
  std::vector<std::uint8_t> mask(std::span<const std::int64_t> begins) const;
  /// The ranks use these together.
  void add(std::span<const std::uint8_t> mask);
  /// Of passes that gather ahead: what this rank has seen used in a step, and what all ranks have.
  void see(std::span<const std::uint8_t> mask);
  const std::vector<std::uint8_t>& seen() const { return seen_; }
  void agreed(std::span<const std::uint8_t> seen);

  /// What is to be gathered of a buffer with `n` elements.
  Ranges needed(model::Part part, std::int64_t n, Need need) const;
  /// The elements of these experts.
  Ranges of(std::span<const std::uint8_t> mask, model::Part part) const;

 private:
  /// The weights of all experts, one after the other.
  struct Stack {
    model::Part part;
    std::int64_t offset, numel;  ///< of one expert
  };
  bool more_than_half(std::span<const std::uint8_t> mask) const;
  Ranges without_experts(model::Part part, std::int64_t n) const;

  std::int64_t count_ = 0;
  std::vector<Stack> stacks_;  ///< by offset
  std::vector<std::uint8_t> used_, seen_;
  bool many_ = false;  ///< what the ranks know last is that more than half are used
  bool as_asked_ = true;
};

}  // namespace qft::parallel
