#include "qft/infer/generator.h"

#include "qft/core/error.h"

#include <algorithm>
#include <chrono>

#include "continuation.h"

namespace qft::infer {

SamplerOptions sampler_options(const config::RunConfig& config) {
  const auto& g = config.generate;
  // At temperature 0 the most probable token has all the probability.
  return {!g.do_sample || g.temperature == 0.0,
          g.temperature,
          g.top_k,
          g.top_p,
          g.repetition_penalty,
          static_cast<std::uint64_t>(config.training.seed)};
}

AnswerLimit answer_limit(const config::GenerateArgs& args, std::int64_t positions, std::int64_t prompt_tokens) {
  const std::int64_t room = positions - prompt_tokens;
  if (room < 1)
    fail_config(
        "the prompt has {} tokens, but the model has {} positions (max_position_embeddings in its config.json, with its rope "
        "scaling): shorten the prompt, or use a model with a longer context",
        prompt_tokens, positions);
  if (args.max_new_tokens > 0) return {std::min(args.max_new_tokens, room), args.max_new_tokens > room};
  if (args.max_length <= prompt_tokens)
    fail_config("max_length {} leaves no room for an answer to a prompt of {} tokens: raise it, or set max_new_tokens",
                args.max_length, prompt_tokens);
  return {std::min(args.max_length - prompt_tokens, room), args.max_length > positions};
}

Generation generate(Decoder& decoder, Sampler& sampler, const tokenizer::Tokenizer& tokenizer,
                    std::span<const std::int32_t> prompt, std::span<const std::int32_t> stop_ids, std::int64_t max_new_tokens,
                    bool skip_special_tokens, const std::function<void(std::string_view)>& on_text,
                    const std::function<bool()>& interrupt) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  const auto cached = static_cast<std::size_t>(decoder.sequence().length());
  require(cached < prompt.size(), "all {} tokens of the prompt are already in the cache", prompt.size());
  Generation out;
  out.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  Continuation sequence(prompt, max_new_tokens, sampler, stop_ids);
  tokenizer::StreamDecoder stream(tokenizer, skip_special_tokens);
  const auto emit = [&](const std::string& piece) {
    out.text += piece;
    if (on_text && !piece.empty()) on_text(piece);
  };
  const auto start = Clock::now();
  at::Tensor logits = decoder.forward(prompt.subspan(cached));
  out.prompt_seconds = seconds(start);
  const auto decoding = Clock::now();
  for (bool more = max_new_tokens > 0; more;) {
    out.interrupted = interrupt && interrupt();
    if (out.interrupted) break;
    more = sequence.extend({logits.data_ptr<float>(), static_cast<std::size_t>(logits.numel())});
    if (sequence.stop() < 0) emit(stream.push(sequence.last().front()));
    if (more) logits = decoder.forward(sequence.last());
  }
  if (!out.interrupted) emit(stream.finish());  // after an interrupt, an incomplete character is dropped
  out.decode_seconds = seconds(decoding);
  out.ids.assign(sequence.answer().begin(), sequence.answer().end());
  out.stopped = sequence.stop() >= 0;
  return out;
}

}  // namespace qft::infer
