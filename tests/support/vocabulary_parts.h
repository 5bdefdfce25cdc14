// Runs code on parts of a vocabulary as ranks that share it would: a thread per part, whose reductions meet at a barrier.
#pragma once

#include "qft/core/error.h"
#include "qft/ops/vocabulary.h"

#include <barrier>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/maximum.h>
#include <gtest/gtest.h>

namespace qft::test {

/// Tokens [first, first + count).
struct Tokens {
  std::int64_t first, count;
  at::Tensor of(const at::Tensor& table) const { return table.narrow(0, first, count); }
};

/// Reduces tensors of several threads. All must call alike; a thread that calls another reduction, or one of another shape, makes
/// all throw.
class Reductions {
 public:
  explicit Reductions(std::int64_t parts) : given_(static_cast<std::size_t>(parts)), barrier_(parts) {}

  void reduce(std::int64_t part, const std::string& kind, const at::Tensor& t) {
    given_[static_cast<std::size_t>(part)] = {kind, t};
    barrier_.arrive_and_wait();
    at::Tensor result;
    for (const auto& [other, tensor] : given_) {
      QFT_ASSERT(other == kind && tensor.sizes() == t.sizes() && tensor.scalar_type() == t.scalar_type(),
                 "part {}: {} of {} meets {} of {}", part, kind, t.numel(), other, tensor.defined() ? tensor.numel() : -1);
      result = !result.defined() ? tensor.clone() : kind == "add" ? result + tensor : at::maximum(result, tensor);
    }
    QFT_ASSERT(t.is_contiguous() && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble),
               "reductions take contiguous fp32 and fp64 tensors");
    barrier_.arrive_and_wait();
    t.copy_(result);
    if (part == 0) ++count;
  }
  /// A part that has ended takes no part in later reductions: they fail.
  void leave(std::int64_t part) {
    given_[static_cast<std::size_t>(part)] = {"nothing", at::Tensor()};
    barrier_.arrive_and_drop();
  }

  int count = 0;  ///< reductions so far

 private:
  std::vector<std::pair<std::string, at::Tensor>> given_;
  std::barrier<> barrier_;
};

/// Cuts a vocabulary as evenly as possible.
inline std::vector<std::int64_t> even_bounds(std::int64_t vocabulary, std::int64_t parts) {
  std::vector<std::int64_t> bounds = {0};
  for (std::int64_t p = 0; p < parts; ++p)
    bounds.push_back(bounds.back() + vocabulary / parts + (p < vocabulary % parts ? 1 : 0));
  return bounds;
}

/// Runs body(part, its tokens) for the parts between consecutive bounds, each on a thread. Returns the number of reductions.
inline int on_parts(const std::vector<std::int64_t>& bounds,
                    const std::function<void(const ops::VocabularyPart& part, const Tokens& own)>& body) {
  const auto parts = static_cast<std::int64_t>(bounds.size()) - 1;
  Reductions reductions(parts);
  std::vector<std::thread> threads;
  for (std::int64_t p = 0; p < parts; ++p)
    threads.emplace_back([&, p] {
      const at::NoGradGuard no_grad;
      const auto with = [&reductions, p](const char* kind) {
        return [&reductions, p, kind](const at::Tensor& t) { reductions.reduce(p, kind, t); };
      };
      const std::int64_t first = bounds[static_cast<std::size_t>(p)], end = bounds[static_cast<std::size_t>(p) + 1];
      try {
        body({.first = first, .whole = bounds.back(), .part = p, .parts = parts, .add = with("add"), .maximum = with("maximum")},
             {first, end - first});
      } catch (const std::exception& e) {
        ADD_FAILURE() << "part " << p << ": " << e.what();
      }
      reductions.leave(p);
    });
  for (std::thread& thread : threads) thread.join();
  return reductions.count;
}

}  // namespace qft::test
