#include "qft/model/sequence_state.h"

#include "qft/core/error.h"

#include <algorithm>
#include <ranges>

namespace qft::model {

std::int64_t state_bytes(const ModelSpec& spec, std::int64_t capacity, at::ScalarType dtype) {
  std::int64_t bytes = 0;
  for (const Layer& layer : spec.layers)
    for (const SubLayerSpec& sublayer : layer) {
      const auto code = make_sublayer(spec.config, sublayer);
      bytes += code->state_bytes(dtype) + capacity * code->state_bytes_per_token(dtype);
    }
  return bytes;
}

SequenceState::SequenceState(const ModelSpec& spec, std::int64_t capacity, at::ScalarType dtype, c10::Device device)
    : capacity_(capacity) {
  for (const Layer& layer : spec.layers) {
    auto& states = states_.emplace_back();
    for (const SubLayerSpec& sublayer : layer)
      states.push_back(make_sublayer(spec.config, sublayer)->make_state(capacity, dtype, device));
  }
}

std::int64_t SequenceState::truncate(std::int64_t length) {
  QFT_ASSERT(length <= length_, "cannot truncate {} tokens to {}", length_, length);
  const auto all = std::views::join(states_);
  const bool can = std::ranges::all_of(all, [&](const auto& state) { return !state || state->can_truncate_to(length); });
  length_ = can ? length : 0;
  if (length_ == 0)
    for (const auto& state : all)
      if (state) state->reset();
  return length_;
}

void SequenceState::require_room(std::int64_t tokens) const {
  require(length_ + tokens <= capacity_, "the key-value cache holds {} tokens, but {} are needed: raise max_new_tokens",
          capacity_, length_ + tokens);
}

}  // namespace qft::model
