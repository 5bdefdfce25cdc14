#include "qft/infer/generator.h"

#include <algorithm>
#include <chrono>

#include "qft/core/error.h"

namespace qft::infer {

SamplerOptions sampler_options(const config::RunConfig& config) {
  const auto& g = config.generate;
  return {!g.do_sample, g.temperature, g.top_k, g.top_p, g.repetition_penalty, static_cast<std::uint64_t>(config.training.seed)};
}

Generation generate(Decoder& decoder, Sampler& sampler, const tokenizer::Tokenizer& tokenizer,
                    std::span<const std::int32_t> prompt, std::span<const std::int32_t> stop_ids,
                    std::int64_t max_new_tokens, bool skip_special_tokens,
                    const std::function<void(std::string_view)>& on_text) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  const auto cached = static_cast<std::size_t>(decoder.cache().length());
  require(cached < prompt.size(), "the prompt has {} tokens, all of them fed before", prompt.size());
  Generation out;
  out.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  std::vector<std::int32_t> context(prompt.begin(), prompt.end());
  tokenizer::StreamDecoder stream(tokenizer, skip_special_tokens);
  const auto emit = [&](const std::string& piece) {
    out.text += piece;
    if (on_text && !piece.empty()) on_text(piece);
  };
  const auto start = Clock::now();
  at::Tensor logits = decoder.forward(prompt.subspan(cached));
  out.prompt_seconds = seconds(start);
  const auto decoding = Clock::now();
  while (static_cast<std::int64_t>(out.ids.size()) < max_new_tokens) {
    const std::int32_t id = sampler.next({logits.data_ptr<float>(), static_cast<std::size_t>(logits.numel())}, context);
    if (std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end()) {
      out.stopped = true;
      break;
    }
    out.ids.push_back(id);
    context.push_back(id);
    emit(stream.push(id));
    if (static_cast<std::int64_t>(out.ids.size()) < max_new_tokens) logits = decoder.forward({&out.ids.back(), 1});
  }
  emit(stream.finish());
  out.decode_seconds = seconds(decoding);
  return out;
}

}  // namespace qft::infer
