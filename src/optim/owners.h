// Parameters that one rank, their owner, updates as a whole. Assigns owners by size, sends gradients to the owners and updates
// back.
#pragma once

#include "qft/optim/rule.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::optim {

/// A parameter with an owner.
struct Owned {
  std::size_t buffer = 0, segment = 0;  ///< index of the FlatParams, and of its segment
  std::int64_t begin = 0, end = 0;      ///< range in the unit's buffer
  Shape stack;                          ///< Param::as_stack()
  int owner = 0;
  std::vector<at::Tensor> state = {};  ///< on the owner: states with StateSpec::block_size 0
};

class Owners {
 public:
  Owners() = default;
  /// `all` must be the same on every rank. Not collective.
  Owners(std::vector<Owned> all, Slices slices);

  const std::vector<Owned>& all() const { return all_; }
  std::vector<Owned>& all() { return all_; }
  bool is_mine(const Owned& owned) const;

  /// Returns this rank's part of a parameter's gradients, 1-D and contiguous; may be empty.
  using Part = std::function<at::Tensor(const Owned&)>;
  /// Receives the gradients in `values` [stack] and replaces them by the values to send back.
  using Body = std::function<void(const Owned&, const at::Tensor& values)>;
  /// Calls `body` with the whole gradients of each parameter that this rank owns, and writes the results to every rank's parts.
  /// Sends only a few parameters at a time. Collective.
  void update_owned(const Part& part, const Body& body);

 private:
  void assign_owners();
  std::int64_t length_on(int rank, const Owned& owned) const;
  void exchange(std::size_t first, std::size_t last, const Part& part, const Body& body);

  std::vector<Owned> all_;
  Slices slices_;
  std::vector<std::size_t> rounds_;  ///< begin of each round, and the end
};

}  // namespace qft::optim
