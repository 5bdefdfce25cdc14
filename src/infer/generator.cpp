#include "qft/infer/generator.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>

#include <ATen/Parallel.h>

namespace qft::infer {
namespace {

/// A sequence during generation: prompt, answer so far, and the conditions that end it.
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

/// Calls `done` for each complete answer, and frees its slot. Tensor ranks complete the same answers: if `done` throws on one of
/// them, the exception leaves this function there, and the others return false.
bool deliver(Slots& slots, const Decoder& decoder, const std::function<void(std::size_t, const Answer&)>& done) {
  std::exception_ptr error;
  bool any = false;
  for (auto& slot : slots) {
    if (!slot || slot->more) continue;
    any = true;
    try {
      const auto answer = slot->sequence.answer();
      if (!error) done(slot->request, {{answer.begin(), answer.end()}, slot->sequence.stop()});
    } catch (...) {
      error = std::current_exception();
    }
    slot.reset();
  }
  const bool ends = any && decoder.on_any_tensor_rank(error != nullptr);
  if (error) std::rethrow_exception(error);
  return !ends;
}

}  // namespace

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

std::vector<std::int32_t> stop_tokens(std::span<const std::int32_t> of_template, const tokenizer::Tokenizer& tokenizer,
                                      const model::ModelConfig& model) {
  std::vector<std::int32_t> ids(of_template.begin(), of_template.end());
  if (tokenizer.eos_id()) ids.push_back(*tokenizer.eos_id());
  ids.insert(ids.end(), model.eos_token_ids.begin(), model.eos_token_ids.end());
  if (!model.raw.empty()) {  // if generation_config.json has the key, the ids above come from it, not from config.json
    const auto of_config = model::ModelConfig::parse(model.raw, "config.json").eos_token_ids;
    ids.insert(ids.end(), of_config.begin(), of_config.end());
  }
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

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
    if (!deliver(slots, decoder, done)) return;
  }
}

}  // namespace qft::infer
