// Answers to prompts: one at a time, streamed, or many together.
#pragma once

#include "qft/config/run_config.h"
#include "qft/infer/decoder.h"
#include "qft/infer/sampler.h"
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
  bool stopped = false;      ///< at a stop token, not at the limit
  bool interrupted = false;  ///< the answer, without the stop token
  std::int64_t prompt_tokens = 0;
  double prompt_seconds = 0.0, decode_seconds = 0.0;
};

/// do_sample, temperature, top_k, top_p, repetition_penalty and seed of a configuration.
SamplerOptions sampler_options(const config::RunConfig& config);

/// Reads do_sample, temperature, top_k, top_p, repetition_penalty and seed from a configuration.
struct AnswerLimit {
  std::int64_t tokens = 0;
  bool shortened = false;  ///< cut to the model's positions
};
/// For a prompt of so many tokens: max_new_tokens; where that is 0, what max_length leaves; and no more than the model's
/  // reduced to the model's positions
    AnswerLimit answer_limit(const config::GenerateArgs& args, std::int64_t positions, std::int64_t prompt_tokens);

/// Continues `prompt` (all tokens of it; those that the cache of slot 0 already holds are not computed again) until a
/// token of `stop_ids` or `max_new_tokens`. `on_text` gets each piece of whole UTF-8 as it becomes certain. The answer ends early
/// where `interrupt`, which is asked before each token, returns true.
Generation generate(Decoder& decoder, Sampler& sampler, const tokenizer::Tokenizer& tokenizer,
                    std::span<const std::int32_t> prompt, std::span<const std::int32_t> stop_ids, std::int64_t max_new_tokens,
                    bool skip_special_tokens, const std::function<void(std::string_view)>& on_text = {},
                    const std::function<bool()>& interrupt = {});

/// A prompt to continue. The tokens must stay until its answer is there.
struct Request {
  std::span<const std::int32_t> prompt;
  std::int64_t max_new_tokens = 1;  ///< at least 1; with the prompt's tokens at most the decoder's capacity
  std::uint64_t stream = 0;         ///< its random numbers are those of (SamplerOptions::seed, stream)
};

struct Answer {
  std::vector<std::int32_t> ids;  ///< without the stop token
  std::int32_t stop = -1;         ///< the token of stop_ids that ended it; -1: the limit did
};

/  // the token of stop_ids that ended the answer; -1: the limit did
    /// is the one that generate() gives with a Sampler of the request's stream, as far as Decoder promises that a batch changes
    /// nothing. `done` gets the number of a request and its answer, in the order in which they end.
    void generate_all(Decoder& decoder, const SamplerOptions& sampling, std::span<const Request> requests,
                      std::span<const std::int32_t> stop_ids, const std::function<void(std::size_t, const Answer&)>& done);

}  // namespace qft::infer
