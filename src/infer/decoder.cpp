#include "qft/infer/decoder.h"

#include "qft/core/error.h"
#include "qft/device/upload.h"

#include <utility>

#include <ATen/ops/index_select.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/InferenceMode.h>

namespace qft::infer {

Decoder::Decoder(engine::Instance& instance, std::int64_t capacity, std::size_t slots)
    : Decoder(instance.transformer(), instance.weights(), capacity, slots) {}

Decoder::Decoder(model::Transformer& transformer, parallel::WeightReader& weights, std::int64_t capacity, std::size_t slots)
    : transformer_(transformer), weights_(weights), arena_(transformer.device()) {
  const model::ModelSpec& spec = transformer.spec();
  for (std::size_t s = 0; s < slots; ++s) sequences_.emplace_back(spec, capacity, transformer.dtype(), transformer.device());
  const auto flat = [&](int unit) { return weights_.acquire(unit); };
  embedding_ = model::bind_weight(spec.units[0], model::kEmbedTokens, flat(0));
  for (int u = 1; u < spec.head_unit(); ++u)
    layers_.push_back(model::bind_layer(spec, spec.units[static_cast<std::size_t>(u)], flat(u)));
  const auto head = flat(spec.head_unit());
  final_norm_ = model::bind_weight(spec.units.back(), model::kFinalNorm, head);
  head_ = spec.config.tie_word_embeddings ? embedding_ : model::bind_weight(spec.units.back(), model::kLmHead, head);
  transformer.ensure_positions(capacity);
}

Decoder::~Decoder() {
  for (int u = 0; u < transformer_.spec().num_units(); ++u) weights_.release(u);
}

bool Decoder::on_any_tensor_rank(bool value) const {
  if (transformer_.tensor().alone()) return value;
  const at::Tensor most = at::scalar_tensor(value ? 1.0 : 0.0, at::kDouble);
  transformer_.tensor().max(most);
  return most.item<double>() > 0.0;
}

at::Tensor Decoder::forward(std::span<const std::int32_t> tokens) {
  const Input input{0, tokens};
  return forward({&input, 1}).view({-1});
}

at::Tensor Decoder::forward(std::span<const Input> inputs) {
  const c10::InferenceMode no_autograd;
  QFT_ASSERT(!inputs.empty(), "no sequence to decode");
  const auto count = static_cast<std::int64_t>(inputs.size());
  const at::Tensor logits = results_.get("logits", {count, transformer_.spec().config.vocab_size}, at::kFloat);
  for (std::size_t begin = 0, end = 0; begin < inputs.size(); begin = end) {
    end = group_end(inputs, begin);
    forward_group(inputs.subspan(begin, end - begin),
                  logits.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin)));
  }
  return logits;
}

// On a GPU all inputs run together. On the CPU, smaller groups guarantee that a batch changes no sequence's logits.
std::size_t Decoder::group_end(std::span<const Input> inputs, std::size_t begin) const {
  if (!transformer_.device().is_cpu()) return inputs.size();
  std::size_t end = begin + 1;
  if (inputs[begin].tokens.size() > 1) return end;
  while (end < inputs.size() && inputs[end].tokens.size() == 1 && end - begin < static_cast<std::size_t>(ops::kMaxGemvRows))
    ++end;
  return end;
}

void Decoder::forward_group(std::span<const Input> inputs, const at::Tensor& logits) {
  auto& t = transformer_;
  std::vector<std::int32_t> ids, positions, last;
  std::vector<model::SequenceTokens> sequences;
  std::vector<model::TokenRange> ranges;
  for (const Input& in : inputs) {
    QFT_ASSERT(!in.tokens.empty(), "no token to decode in slot {}", in.slot);
    sequences.push_back({&sequences_.at(in.slot), static_cast<std::int64_t>(in.tokens.size())});
    sequences.back().sequence->require_room(sequences.back().count);
    ranges.push_back({sequences.back().sequence->length(), sequences.back().count});
    auto position = static_cast<std::int32_t>(ranges.back().first);
    for (const std::int32_t id : in.tokens) {
      ids.push_back(id);
      positions.push_back(position++);
    }
    last.push_back(static_cast<std::int32_t>(ids.size()) - 1);
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  const auto boundary = [&](const char* name) {
    return t.workspace().get(name, {count, t.spec().config.hidden_size}, t.dtype());
  };
  at::Tensor x = boundary("decode.x"), y = boundary("decode.y");
  t.embedding_decode(embedding_, device::upload(ids, t.device()), x);
  const auto pass_mark = arena_.mark();
  const model::Angles by_position{device::upload(positions, t.device()), t.rope()};
  const model::Angles angles = t.dynamic_angles(ranges, arena_).value_or(by_position);
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    const auto mark = arena_.mark();
    const model::LayerWeights& w = layers_[static_cast<std::size_t>(i)];
    t.layer_decode(i, w, angles, sequences, y, t.allocate_saved(i, w, x, arena_));
    arena_.release(mark);
    std::swap(x, y);
  }
  arena_.release(pass_mark);
  for (const auto& [sequence, tokens] : sequences) sequence->advance(tokens);
  if (count > static_cast<std::int64_t>(inputs.size())) x = at::index_select(x, 0, device::upload(last, t.device()));
  logits.copy_(t.logits(final_norm_, head_, x));
}

}  // namespace qft::infer
