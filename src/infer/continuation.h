// A sequence during generation: prompt, answer so far, and the conditions that end it.
#pragma once

#include "qft/infer/sampler.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace qft::infer {

class Continuation {
 public:
  /// `sampler` and `stop_ids` must outlive the object.
  Continuation(std::span<const std::int32_t> prompt, std::int64_t max_new_tokens, Sampler& sampler,
               std::span<const std::int32_t> stop_ids)
      : context_(prompt.begin(), prompt.end()),
        prompt_tokens_(prompt.size()),
        limit_(static_cast<std::size_t>(max_new_tokens)),
        sampler_(sampler),
        stop_ids_(stop_ids) {}

  /// Chooses the next token. Changes `logits` [vocab]. Returns false if the answer is complete: at a stop token, which does not
  /// become part of it, or when this token reaches the limit.
  bool extend(std::span<float> logits) {
    const std::int32_t id = sampler_.next(logits, context_);
    if (std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end()) {
      stop_ = id;
      return false;
    }
    context_.push_back(id);
    return answer().size() < limit_;
  }

  std::span<const std::int32_t> answer() const { return std::span(context_).subspan(prompt_tokens_); }
  /// Returns the token that extend() chose last, which is fed next.
  std::span<const std::int32_t> last() const { return std::span(context_).last(1); }
  /// Returns the stop token that ended the answer, or -1.
  std::int32_t stop() const { return stop_; }

 private:
  std::vector<std::int32_t> context_;
  std::size_t prompt_tokens_, limit_;
  std::int32_t stop_ = -1;
  Sampler& sampler_;
  std::span<const std::int32_t> stop_ids_;
};

}  // namespace qft::infer
