// Divides the ranks into groups. All arithmetic on degrees is here.
#pragma once

#include "qft/comm/communicator.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
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

/// Describes resolved degrees: "8 ranks = replicate 2 x shard 4".
std::string describe(const Degrees& degrees);

/// The groups of this rank. The world must outlive the mesh.
class Mesh {
 public:
  /// Makes a device communicator for the ranks of `host`. Takes ownership of `host`.
  using ForDevice = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator> host)>;
  /// `world`: all ranks, for host memory; collective over it. The mesh's groups are the results of `for_device`, or groups for
  /// host memory without it. All ranks throw the same ConfigError if the degrees do not fit.
  Mesh(Communicator& world, Degrees degrees, const ForDevice& for_device = {});

  /// Returns the ranks that differ from this one only along `axis`.
  Communicator& group(Axis axis) const;

  const Degrees& degrees() const { return degrees_; }
  int degree(Axis axis) const;
  int coordinate(Axis axis) const;


 private:
  Degrees degrees_;
  std::array<int, kAxes> coordinates_{};
  std::array<std::unique_ptr<Communicator>, kAxes> groups_;
};

}  // namespace qft::comm
