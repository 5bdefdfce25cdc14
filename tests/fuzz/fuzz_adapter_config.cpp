// adapter_config.json: any bytes give an Error, or an adapter for a small model that survives writing and reading.
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
    const AdapterConfig adapter = read_adapter_config(folder.path());
    const ModelSpec spec = ModelSpec::build(model, Finetuning::adapter, adapter);
    if (spec.num_params(true) <= 0 && adapter.targets().target_pattern.empty()) std::abort();
    const std::string text = adapter_config_json(adapter, read_base_model_name(folder.path()));
    folder.write(kAdapterConfigFile, reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    const AdapterConfig again = read_adapter_config(folder.path());
    const LoraConfig &lora = adapter.lora, &same = again.lora;
    if (again.targets().targets_text() != adapter.targets().targets_text()) std::abort();
    if (same.rank != lora.rank || same.alpha != lora.alpha || same.dora != lora.dora) std::abort();
    if (same.ranks != lora.ranks || same.alphas != lora.alphas) std::abort();
    if (again.oft.enabled() != adapter.oft.enabled() || again.oft.describe() != adapter.oft.describe()) std::abort();
  } catch (const qft::Error&) {
    // Refused.
  }
  return 0;
}
