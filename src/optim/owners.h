// Parameters that one rank, their owner, updates as a whole: dealt by size, with their gradients sent to it and back.
#pragma once

#include "qft/optim/rule.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::optim {

/// One such parameter.
struct Owned {
  std::size_t buffer = 0, segment = 0;  ///< FlatParams and its segment
  std::int64_t begin = 0, end = 0;      ///< in the unit's buffer
  Shape stack;                          ///< Param::as_stack()
  int owner = 0;
  std::vector<at::Tensor> state = {};  ///< the owner's, of StateSpec::per 0
};

class Owners {
 public:
  Owners() = default;
  /// The same list on every rank. Not collective.
  Owners(std::vector<Owned> all, Slices slices);

  const std::vector<Owned>& all() const { return all_; }
  std::vector<Owned>& all() { return all_; }
  bool is_mine(const Owned& owned) const;

  /// This rank's part of the gradients, 1-D and contiguous; may be empty.
  using Part = std::function<at::Tensor(const Owned&)>;
  /// `values` [stack]: gradients, of which body makes what goes back.
  using Body = std::function<void(const Owned&, const at::Tensor& values)>;
  /// Calls body for the parameters of this rank with their whole gradients, and leaves in every rank's parts what it made of
  /// them. A few at a time travel. Collective.
  void direct(const Part& part, const Body& body);

 private:
  void deal();
  std::int64_t length_on(int rank, const Owned& owned) const;
  void exchange(std::size_t first, std::size_t last, const Part& part, const Body& body);

  std::vector<Owned> all_;
  Slices slices_;
  std::vector<std::size_t> rounds_;  ///< where each begins, and the end
};

}  // namespace qft::optim
