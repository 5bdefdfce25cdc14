// Decoding state of one sequence: the state of each sub-layer that mixes tokens (attention: keys and values), allocated once.
#pragma once

#include "qft/model/spec.h"
#include "qft/model/sublayer.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace qft::model {

/// Returns the bytes that a sequence with up to `capacity` tokens needs in all layers together.
std::int64_t state_bytes(const ModelSpec& spec, std::int64_t capacity, at::ScalarType dtype);

class SequenceState {
 public:
  /// Allocates space for `capacity` tokens.
  SequenceState(const ModelSpec& spec, std::int64_t capacity, at::ScalarType dtype, c10::Device device);

  std::int64_t capacity() const { return capacity_; }
  std::int64_t length() const { return length_; }
  /// Forgets everything from token `length` on, or everything if some state cannot return to that point. Returns length().
  std::int64_t truncate(std::int64_t length);
  /// Throws Error if `tokens` more tokens do not fit.
  void require_room(std::int64_t tokens) const;
  /// Call after all layers have processed `tokens` new tokens.
  void advance(std::int64_t tokens) { length_ += tokens; }

  /// Returns nullptr for a sub-layer that does not mix tokens.
  DecodeState* at(int layer, std::size_t sublayer) const {
    return states_.at(static_cast<std::size_t>(layer)).at(sublayer).get();
  }

 private:
  std::int64_t capacity_, length_ = 0;
  std::vector<std::vector<std::unique_ptr<DecodeState>>> states_;  ///< by layer and sub-layer
};

/// The next `count` tokens of a sequence.
struct SequenceTokens {
  SequenceState* sequence = nullptr;
  std::int64_t count = 0;
};

}  // namespace qft::model
