#include "qft/infer/stop_tokens.h"

#include <algorithm>

namespace qft::infer {

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

}  // namespace qft::infer
