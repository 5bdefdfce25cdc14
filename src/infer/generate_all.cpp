#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/infer/generator.h"

#include <algorithm>
#include <memory>

#include "continuation.h"
#include <ATen/Parallel.h>

namespace qft::infer {
namespace {

/// A slot's current request.
struct Active {
  Active(std::size_t index, const Request& request, const SamplerOptions& options, std::span<const std::int32_t> stop_ids)
      : request(index),
        sampler(options),
        sequence(request.prompt, request.max_new_tokens, sampler, stop_ids),
        input(request.prompt) {}

  std::size_t request;
  Sampler sampler;
  Continuation sequence;
  std::span<const std::int32_t> input;  ///< fed in the next pass
  bool more = true;
};

using Slots = std::vector<std::unique_ptr<Active>>;

/// Returns all slots' inputs: first the new tokens of answers, which go through the weights together, then prompts.
std::vector<Decoder::Input> inputs_of(const Slots& slots) {
  std::vector<Decoder::Input> inputs;
  for (std::size_t s = 0; s < slots.size(); ++s)
    if (slots[s]) inputs.push_back({s, slots[s]->input});
  std::ranges::stable_partition(inputs, [](const Decoder::Input& in) { return in.tokens.size() == 1; });
  return inputs;
}

void extend(const Slots& slots, std::span<const Decoder::Input> inputs, const at::Tensor& logits) {
  const auto vocab = static_cast<std::size_t>(logits.size(1));
  float* rows = logits.data_ptr<float>();
  at::parallel_for(0, static_cast<std::int64_t>(inputs.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      Active& a = *slots[inputs[i].slot];
      a.more = a.sequence.extend({rows + i * vocab, vocab});
      a.input = a.sequence.last();
    }
  });
}

}  // namespace

void generate_all(Decoder& decoder, const SamplerOptions& sampling, std::span<const Request> requests,
                  std::span<const std::int32_t> stop_ids, const std::function<void(std::size_t, const Answer&)>& done) {
  Slots slots(decoder.slots());
  for (std::size_t next = 0;;) {
    for (std::size_t s = 0; s < slots.size() && next < requests.size(); ++s) {
      if (slots[s]) continue;
      const Request& request = requests[next];
      QFT_ASSERT(!request.prompt.empty() && request.max_new_tokens > 0, "request {} has no prompt, or no room for an answer",
                 next);
      SamplerOptions options = sampling;
      options.stream = request.stream;
      decoder.sequence(s).truncate(0);
      slots[s] = std::make_unique<Active>(next++, request, options, stop_ids);
    }
    const auto inputs = inputs_of(slots);
    if (inputs.empty()) return;
    extend(slots, inputs, decoder.forward(inputs));
    activity::tick();
    for (auto& slot : slots) {
      if (!slot || slot->more) continue;
      const auto answer = slot->sequence.answer();
      done(slot->request, {{answer.begin(), answer.end()}, slot->sequence.stop()});
      slot.reset();
    }
  }
}

}  // namespace qft::infer
