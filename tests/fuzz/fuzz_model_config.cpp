// config.json: any bytes give a model whose tensors have a size, or an Error.
#include "qft/core/error.h"
#include "qft/model/config.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qft::model;  // NOLINT: a test
  try {
    const ModelConfig config = ModelConfig::parse({reinterpret_cast<const char*>(data), size}, "config.json");
    const ModelSpec spec = ModelSpec::build(config, Finetuning::full, {});
    if (spec.num_params(false) <= 0) std::abort();
    static_cast<void>(config.inverse_frequencies());
  } catch (const qft::Error&) {
    // Refused.
  }
  return 0;
}
