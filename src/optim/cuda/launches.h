// The kernels of optim as host code sees them: each is defined in a *.cuh, for the types that cuda/optim.cu compiles it for.
// `launch` queues a kernel on a stream, or runs it (tests/support/simt.h).
#pragma once

#include <cstdint>

namespace qft::optim::cuda {

/// P: type of masters, gradients and state; W: type of the compute copy; S: number of state tensors.
template <class P, class W, int S>
struct UpdateBuffers {
  P* master;
  const P* grads;
  P* state[S];
  W* copy;  ///< may be null
  std::int64_t count;
};

/// Updates every element by element(p, g, s): master p and state s[S] by the gradient g.
template <class P, class W, int S, class Element, class Launch>
void launch_update(const UpdateBuffers<P, W, S>& b, const Element& element, const Launch& launch);

constexpr int kSquareParts = 256;  ///< the same on every device, so that the sum has the same bits

/// Fills parts [kSquareParts] with partial sums of squares.
template <class T, class Launch>
void launch_square_sum(const T* values, std::int64_t count, double* parts, const Launch& launch);

}  // namespace qft::optim::cuda
