// Parameters that one rank, their owner, updates as a whole. Assigns owners by size, sends gradients to the owners and updates
// back.
#pragma once

#include "qft/optim/rule.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tensor_parts.h"
#include <ATen/core/Tensor.h>

namespace qft::optim {

/// A parameter with an owner.
struct Owned {
  std::size_t buffer = 0, segment = 0;  ///< index of the FlatParams, and of its segment
  Shape shape, stack;                   ///< of the whole tensor; Param::as_stack()
  std::vector<TensorPart> parts;        ///< by tensor rank
  int owner = 0;
  std::vector<at::Tensor> state = {};  ///< on the owner: states with StateSpec::block_size 0

  std::int64_t numel() const;
};

class Owners {
 public:
  /// `all`: the same parameters in the same order on every rank, each with this rank's part alone. With several tensor ranks
  /// collective, and throws Error as parts_of_all() does.
  Owners(std::vector<Owned> all, Slices slices);

  const std::vector<Owned>& all() const { return all_; }
  std::vector<Owned>& all() { return all_; }
  bool is_mine(const Owned& owned) const;

  /// Returns this rank's part of a parameter's gradients, 1-D and contiguous; may be empty.
  using Part = std::function<at::Tensor(const Owned&)>;
  /// Receives the gradients in `values` [stack] and replaces them by the values to send back.
  using Body = std::function<void(const Owned&, const at::Tensor& values)>;
  /// Calls `body` with the whole gradients of each parameter that this rank owns, and writes the results to every rank's parts.
  /// Of tensor ranks with the same boxes, the first one's gradients are taken. Sends only a few parameters at a time. Collective.
  void update_owned(const Part& part, const Body& body);

 private:
  enum class Way : std::uint8_t { to_owners, back };
  /// Elements that this rank sends to each owner, and that it receives from each rank; on the way back the other way round.
  struct Counts {
    std::vector<std::size_t> mine, theirs;
    bool operator==(const Counts&) const = default;
  };

  void find_parts();
  void make_rounds();
  void assign_owners();
  int ranks() const;
  std::int64_t length_on(int rank, const Owned& owned, Way way) const;
  Counts counts(std::size_t round, Way way) const;
  /// Calls use(owned, place) with the place of this rank's part in `buffer`, in the order of the owners.
  template <class Use>
  void for_my_parts(std::size_t round, Way way, const at::Tensor& buffer, const Use& use) const;
  void exchange(std::size_t round, const Part& part, const Body& body);
  void update(std::size_t round, const at::Tensor& received, const Counts& there, const at::Tensor& answers, const Counts& back,
              const Body& body) const;

  std::vector<Owned> all_;
  Slices slices_;
  std::vector<std::size_t> rounds_;  ///< if shared: begin of each round, and the end
};

}  // namespace qft::optim
