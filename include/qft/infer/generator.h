// Answers to prompts: one at a time, streamed, or many together. And the tokens that end an answer.
#pragma once

#include "qft/config/run_config.h"
#include "qft/infer/decoder.h"
#include "qft/infer/sampler.h"
#include "qft/model/config.h"
#include "qft/tokenizer/tokenizer.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace qft::infer {

struct Generation {
  std::vector<std::int32_t> ids;  ///< the answer, without the stop token
  std::string text;
  bool stopped = false;      ///< by a stop token, not by the limit
  bool interrupted = false;  ///< by the caller: the answer is incomplete
  std::int64_t prompt_tokens = 0;
  double prompt_seconds = 0.0, decode_seconds = 0.0;
};

/// Reads do_sample, temperature, top_k, top_p, repetition_penalty and seed from a configuration.
SamplerOptions sampler_options(const config::RunConfig& config);

/// Number of tokens that an answer may have.
struct AnswerLimit {
  std::int64_t tokens = 0;
  bool shortened = false;  ///< reduced to the model's positions
};
/// Returns the limit for a prompt with `prompt_tokens` tokens: max_new_tokens or, if that is 0, max_length minus the prompt; at
/// most the model's `positions` minus the prompt. Throws ConfigError if no token is left.
AnswerLimit answer_limit(const config::GenerateArgs& args, std::int64_t positions, std::int64_t prompt_tokens);

/// Continues `prompt` (the whole prompt; tokens in slot 0's cache are not computed again) until a token of `stop_ids` or until
/// `max_new_tokens`. `on_text` receives text as soon as it is complete UTF-8. Ends early if `interrupt`, which is called before
/// each token, returns true.
Generation generate(Decoder& decoder, Sampler& sampler, const tokenizer::Tokenizer& tokenizer,
                    std::span<const std::int32_t> prompt, std::span<const std::int32_t> stop_ids, std::int64_t max_new_tokens,
                    bool skip_special_tokens, const std::function<void(std::string_view)>& on_text = {},
                    const std::function<bool()>& interrupt = {});

/// A prompt to continue. The tokens must stay valid until the answer is done.
struct Request {
  std::span<const std::int32_t> prompt;
  std::int64_t max_new_tokens = 1;  ///< at least 1; with the prompt's tokens at most the decoder's capacity
  std::uint64_t stream = 0;         ///< random numbers depend on (SamplerOptions::seed, stream)
};

struct Answer {
  std::vector<std::int32_t> ids;  ///< without the stop token
  std::int32_t stop = -1;         ///< the token of stop_ids that ended the answer; -1: the limit did
};

/// Answers all requests, with as many at a time as the decoder has slots: when an answer finishes, the next request takes its
/// slot. Each answer equals generate()'s with a Sampler of the request's stream, as far as Decoder guarantees that batching
/// changes nothing. `done` receives a request's index and its answer, in the order in which answers finish. With ranks that share
/// the matrices, call it on all of them with the same requests, slots and options. If `done` throws on one of them, the exception
/// is thrown there, and the others return at once: let all ranks agree on errors.
void generate_all(Decoder& decoder, const SamplerOptions& sampling, std::span<const Request> requests,
                  std::span<const std::int32_t> stop_ids, const std::function<void(std::size_t, const Answer&)>& done);

/// Returns the chat template's stop tokens, the tokenizer's end token, and the eos_token_id of generation_config.json and
/// config.json (the same set that servers use): ascending, without duplicates. `model` comes from ModelConfig::load().
std::vector<std::int32_t> stop_tokens(std::span<const std::int32_t> of_template, const tokenizer::Tokenizer& tokenizer,
                                      const model::ModelConfig& model);

}  // namespace qft::infer
