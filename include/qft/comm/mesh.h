// Places ranks on the axes of a mesh. All arithmetic on degrees is here; nothing communicates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace qft::comm {

/// From outermost to innermost: neighbouring ranks (same node first) differ in the last axis first.
enum class Axis : std::uint8_t {
  replicate,  ///< copies of the whole model, which only exchange gradients
  pipeline,   ///< ranges of layers
  shard,      ///< slices of weights, gradients and optimizer state; each rank has its own data
  context,    ///< slices of one sequence
  tensor      ///< slices of one matrix
};
inline constexpr std::size_t kAxes = 5;
std::string_view name_of(Axis axis);

/// Ranks along each axis. One of them may be 0: the degree that makes the product equal the number of ranks.
struct Degrees {
  int replicate = 0;
  int pipeline = 1;
  int shard = 1;
  int context = 1;
  int tensor = 1;
  bool operator==(const Degrees&) const = default;
};

/// Returns `degrees` with its 0 filled in for `world_size` ranks. Throws ConfigError with the numbers if the product cannot be
/// world_size, if a degree is negative, or if two are 0.
Degrees resolve(Degrees degrees, int world_size);

/// Describes resolved degrees: "8 ranks = 2 copies x 4 shards", "8 ranks = 4 copies x 2 parts of each matrix (tensor_parallel); 4
/// data ranks".
std::string describe(const Degrees& degrees);

/// A set of axes.
class Axes {
 public:
  constexpr Axes(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) has_[static_cast<std::size_t>(axis)] = true;
  }
  constexpr bool has(Axis axis) const { return has_[static_cast<std::size_t>(axis)]; }

 private:
  std::array<bool, kAxes> has_{};
};

/// A rank's number in a group of `size` ranks.
struct Place {
  int rank = 0;
  int size = 1;
  bool operator==(const Place&) const = default;
};

/// The axes along which ranks get different samples. Ranks that agree in both coordinates form one data rank.
inline constexpr Axes kDataAxes = {Axis::replicate, Axis::shard};

/// The coordinates of one rank.
class Mesh {
 public:
  /// `rank`: this rank among `ranks` ranks. Throws the ConfigError of resolve() if the degrees do not fit.
  Mesh(Degrees degrees, int rank, int ranks);

  const Degrees& degrees() const { return degrees_; }
  int degree(Axis axis) const;
  int coordinate(Axis axis) const;

  /// Returns this rank's place in its group along `axes`: the ranks that differ from it only along them, in rank order.
  Place place(const Axes& axes) const;
  /// Returns the number of this group among all groups along `axes`: the colour for Communicator::split().
  int group_number(const Axes& axes) const;

 private:
  /// Returns the place along all axes in `axes` together, or (not `inside`) along all others.
  Place combined(const Axes& axes, bool inside) const;

  Degrees degrees_;
  std::array<int, kAxes> coordinates_{};
};

}  // namespace qft::comm
