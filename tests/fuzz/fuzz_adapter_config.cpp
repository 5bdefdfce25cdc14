// adapter_config.json: any bytes give an adapter for a small model, which reads back as it is written, or an Error.
#include "qft/core/error.h"
#include "qft/model/adapter_config.h"
#include "qft/model/config.h"

#include <cmath>

#include "fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qft::model;  // NOLINT: a test
  static const qft::test::ScratchFolder folder;
  static const ModelConfig model = ModelConfig::parse(
      R"({"model_type": "qwen2", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
          "num_attention_heads": 2, "vocab_size": 10})",
      "config.json");
  folder.write(kAdapterConfigFile, data, size);
  try {
    const LoraConfig lora = read_adapter_config(folder.path()).lora;
    if (ModelSpec::build(model, Finetuning::adapter, lora).num_params(true) <= 0 && lora.target_pattern.empty()) std::abort();
    const std::string text = adapter_config_json(lora, read_base_model_name(folder.path()));
    folder.write(kAdapterConfigFile, reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    const LoraConfig again = read_adapter_config(folder.path()).lora;
    if (again.rank != lora.rank || again.alpha != lora.alpha || again.targets_text() != lora.targets_text()) std::abort();
    if (again.dora != lora.dora || again.ranks != lora.ranks || again.alphas != lora.alphas) std::abort();
  } catch (const qft::Error&) {
    // Refused.
  }
  return 0;
}
