// Answers to prompts, streamed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "qft/config/run_config.h"
#include "qft/infer/decoder.h"
#include "qft/infer/sampler.h"
#include "qft/tokenizer/tokenizer.h"

namespace qft::infer {

struct Generation {
  std::vector<std::int32_t> ids;  ///< the answer, without the stop token
  std::string text;
  bool stopped = false;  ///< at a stop token, not at the limit
  std::int64_t prompt_tokens = 0;
  double prompt_seconds = 0.0, decode_seconds = 0.0;
};

/// do_sample, temperature, top_k, top_p, repetition_penalty and seed of a configuration.
SamplerOptions sampler_options(const config::RunConfig& config);

/// Continues `prompt` (all tokens of it; those that the decoder's cache already holds are not computed again) until a
/// token of `stop_ids` or `max_new_tokens`. `on_text` gets each piece of whole UTF-8 as it becomes certain.
Generation generate(Decoder& decoder, Sampler& sampler, const tokenizer::Tokenizer& tokenizer,
                    std::span<const std::int32_t> prompt, std::span<const std::int32_t> stop_ids,
                    std::int64_t max_new_tokens, bool skip_special_tokens,
                    const std::function<void(std::string_view)>& on_text = {});

}  // namespace qft::infer
