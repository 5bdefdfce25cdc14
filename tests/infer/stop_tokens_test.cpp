#include "qft/infer/generator.h"

#include <string>
#include <vector>

#include "encode/fixture.h"
#include <gtest/gtest.h>

namespace qft::infer {

TEST(StopTokens, AreThoseOfTemplateTokenizerGenerationConfigAndConfig) {
  const test::TempFolder folder;
  test::write_byte_tokenizer(folder, {{"eos_token", "<|end|>"}});
  nlohmann::json config = {{"model_type", "llama"},    {"hidden_size", 8},  {"intermediate_size", 16}, {"num_hidden_layers", 2},
                           {"num_attention_heads", 2}, {"vocab_size", 300}, {"eos_token_id", {7, 9}}};
  folder.write("config.json", config.dump());
  const auto tokenizer = tokenizer::Tokenizer::load(folder.path());
  const std::int32_t end = *tokenizer->token_to_id("<|end|>"), mark = *tokenizer->token_to_id("<|im_end|>");
  const std::vector<std::int32_t> of_template = {mark};
  EXPECT_EQ(stop_tokens(of_template, *tokenizer, model::ModelConfig::load(folder.path())), (std::vector{7, 9, mark, end}));
  folder.write("generation_config.json", R"({"eos_token_id": [5, 9]})");
  EXPECT_EQ(stop_tokens(of_template, *tokenizer, model::ModelConfig::load(folder.path())), (std::vector{5, 7, 9, mark, end}));
}

}  // namespace qft::infer
