// Forward passes over the new tokens of one or several sequences, each with its own state (attention: keys and values).
#pragma once

#include "qft/engine/instance.h"
#include "qft/model/arena.h"
#include "qft/model/sequence_state.h"

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::infer {

/// Keeps a model's weights acquired during its lifetime. With sharded weights, only the constructor and the destructor are
/// collective. The rows of all sequences go through the projections together, so that each weight is read from memory once for
/// all of them.
///
/// On the CPU in fp32 and bf16, a sequence's logits do not depend on the other sequences, to the last bit: a prompt is computed
/// alone, and sequences with one new token each are batched only as far as linear_forward gives a row the same bits.
class Decoder {
 public:
  /// `capacity`: tokens of prompt and answer together, in each of `slots` sequences.
  Decoder(engine::Instance& instance, std::int64_t capacity, std::size_t slots = 1);
  /// Decodes with parts of a model, which must outlive the decoder.
  Decoder(model::Transformer& transformer, parallel::WeightReader& weights, std::int64_t capacity, std::size_t slots);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  struct Input {
    std::size_t slot = 0;                  ///< at most once per call
    std::span<const std::int32_t> tokens;  ///< at least one: the tokens after those that the slot already holds
  };
  /// Feeds each slot its tokens. Returns the logits [inputs, vocab] that follow each slot's last token, fp32 on the host; valid
  /// until the next call.
  at::Tensor forward(std::span<const Input> inputs);
  /// Feeds slot 0 alone. Returns [vocab].
  at::Tensor forward(std::span<const std::int32_t> tokens);

  /// Returns true if `value` is true on any of the ranks that share this model's matrices. Collective over them.
  bool on_any_tensor_rank(bool value) const;

  std::size_t slots() const { return sequences_.size(); }
  /// Returns the state of a slot's sequence.
  model::SequenceState& sequence(std::size_t slot = 0) { return sequences_.at(slot); }

 private:
  std::size_t group_end(std::span<const Input> inputs, std::size_t begin) const;
  void forward_group(std::span<const Input> inputs, const at::Tensor& logits);

  model::Transformer& transformer_;
  parallel::WeightReader& weights_;
  std::vector<model::SequenceState> sequences_;  ///< by slot
  model::Weight embedding_, final_norm_, head_;
  std::vector<model::LayerWeights> layers_;
  model::Arena arena_;  ///< activations of the current layer
  ops::Workspace results_{at::kCPU};
};

}  // namespace qft::infer
