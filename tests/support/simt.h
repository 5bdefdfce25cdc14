// Replaces CUDA on machines without it: include it before a header with kernels, and launch them with simt::Launch. The threads
// of a block are fibers in the calling thread. Between two barriers they run one by one in a new random order each time, so that
// a missing barrier gives wrong numbers. The test ends if some threads never reach a barrier.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <type_traits>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __shared__ static  // blocks run one after another
#define __launch_bounds__(...)

struct dim3 {
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned x, y, z;
};
inline dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace simt {

constexpr unsigned kLanes = 32;
constexpr std::size_t kStackBytes = 128 << 10;

/// Runs the threads of one block after another.
class Block {
 public:
  static Block& current() {
    static Block instance;
    return instance;
  }

  template <class Body>
  void run(dim3 shape, const Body& body) {
    const unsigned count = shape.x * shape.y * shape.z;
    if (count == 0 || count > 1024) throw std::runtime_error("a block of " + std::to_string(count) + " threads");
    blockDim = shape;
    body_ = [](const void* b) { (*static_cast<const Body*>(b))(); };
    argument_ = &body;
    while (fibers_.size() < count) fibers_.push_back(std::make_unique<Fiber>());
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), 0U);
    votes_.assign(count, 0);
    for (unsigned t = 0; t < count; ++t) start(t);
    while (pass()) {
    }
  }

  void block_barrier() { wait(State::at_block); }

  template <class T>
  T shuffle_xor(T value, unsigned mask) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
    const unsigned me = now_;
    std::memcpy(&fibers_[me]->exchanged, &value, sizeof(T));
    wait(State::at_warp);
    std::memcpy(&value, &fibers_[me ^ mask]->exchanged, sizeof(T));
    wait(State::at_warp);  // before another thread overwrites the slot
    return value;
  }

  int any(int vote) {
    votes_[now_] = vote;
    block_barrier();
    const bool found = std::ranges::any_of(votes_, [](int v) { return v != 0; });
    block_barrier();
    return found ? 1 : 0;
  }

 private:
  enum class State { ready, at_warp, at_block, done };
  struct Fiber {
    ucontext_t context{};
    State state = State::done;
    std::uint64_t exchanged = 0;
    std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  };

  static void enter() {
    Block& block = current();
    block.body_(block.argument_);
    block.fibers_[block.now_]->state = State::done;
  }

  void start(unsigned t) {
    Fiber& fiber = *fibers_[t];
    getcontext(&fiber.context);
    fiber.context.uc_stack = {fiber.stack.get(), 0, kStackBytes};
    fiber.context.uc_link = &scheduler_;
    makecontext(&fiber.context, &Block::enter, 0);
    fiber.state = State::ready;
  }

  void wait(State state) {
    Fiber& me = *fibers_[now_];
    const dim3 index = threadIdx;
    const unsigned number = now_;
    me.state = state;
    swapcontext(&me.context, &scheduler_);
    threadIdx = index;
    now_ = number;
  }

  /// Runs every ready thread to its next barrier or its end, and opens the complete barriers.
  bool pass() {
    std::ranges::shuffle(order_, random_);
    for (const unsigned t : order_) {
      if (fibers_[t]->state != State::ready) continue;
      now_ = t;
      threadIdx = dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y);
      swapcontext(&scheduler_, &fibers_[t]->context);
    }
    const auto count = static_cast<unsigned>(order_.size());
    bool more = open(0, count, State::at_block);
    for (unsigned first = 0; first < count; first += kLanes) more |= open(first, std::min(first + kLanes, count), State::at_warp);
    const bool all_done = std::ranges::all_of(order_, [&](unsigned t) { return fibers_[t]->state == State::done; });
    if (!more && !all_done) throw std::runtime_error("threads wait at a barrier that others never reach");
    return more;
  }

  bool open(unsigned first, unsigned end, State state) {
    for (unsigned t = first; t < end; ++t)
      if (fibers_[t]->state != state) return false;
    for (unsigned t = first; t < end; ++t) fibers_[t]->state = State::ready;
    return true;
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<unsigned> order_;
  std::vector<int> votes_;
  ucontext_t scheduler_{};
  void (*body_)(const void*) = nullptr;
  const void* argument_ = nullptr;
  unsigned now_ = 0;
  std::minstd_rand random_{1};
};

/// Runs a kernel immediately.
struct Launch {
  template <class Shape, class... Args>
  void operator()(const Shape& shape, void (*kernel)(Args...), const std::type_identity_t<Args>&... args) const {
    gridDim = shape.grid;
    for (unsigned y = 0; y < gridDim.y; ++y)
      for (unsigned x = 0; x < gridDim.x; ++x) {
        blockIdx = dim3(x, y);
        Block::current().run(shape.block, [&] { kernel(args...); });
      }
  }
};

}  // namespace simt

inline float __fmul_rn(float a, float b) {
  const volatile float product = a * b;  // volatile: never fused with a sum
  return product;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline void __syncthreads() {
  simt::Block::current().block_barrier();
}
inline int __syncthreads_or(int vote) {
  return simt::Block::current().any(vote);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return simt::Block::current().shuffle_xor(value, static_cast<unsigned>(mask));
}

/// The tensor cores' tiles (src/ops/linear/narrow_terms_cuda.cuh has their layout).
template <class T>
void multiply_tiles(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b0) {
  const unsigned lane = threadIdx.x % simt::kLanes, g = lane / 4, t = lane % 4;
  const auto of_lane = [&](std::uint64_t word, unsigned other) { return simt::Block::current().shuffle_xor(word, lane ^ other); };
  const auto element = [](std::uint64_t word, unsigned i) {
    T value;
    const std::uint64_t shifted = word >> (16 * i);
    std::memcpy(&value, &shifted, sizeof(T));
    return static_cast<float>(value);
  };
  for (unsigned k = 0; k < 8; ++k) {
    const std::uint64_t a = of_lane(a0 | static_cast<std::uint64_t>(a1) << 32, 4 * g + k / 2);
    for (unsigned n = 0; n < 2; ++n) {
      const float b = element(of_lane(b0, 4 * (2 * t + n) + k / 2), k % 2);
      c[n] += element(a, k % 2) * b;
      c[2 + n] += element(a, 2 + k % 2) * b;
    }
  }
}
