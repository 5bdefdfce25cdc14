// Models whose files hold the layers' linears in 8 or 4 bits already: what config.json's quantization_config says of it.
#pragma once

#include "qft/ops/quantized_layout.h"

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace qft::model {

enum class StoredMethod : std::uint8_t {
  bitsandbytes,  ///< nf4, fp4 or int8, as transformers saves them
  fp8,           ///< e4m3 with a scale a tile, row or tensor: transformers' "fp8", compressed-tensors' "float-quantized"
  gptq,          ///< Frantar et al. 2022, in the tensors that AutoGPTQ and GPTQModel write
  awq            ///< Lin et al. 2023, in those of AutoAWQ's "gemm"
};

struct StoredQuantization {
  StoredMethod method = StoredMethod::bitsandbytes;
  ops::Quantization kind = {};              ///< of those that are quantised; of bitsandbytes each weight's files say their own
  bool zeros_less_one = false;              ///< gptq: zero points are written less 1 (its first version)
  const char* scale = ".weight_scale_inv";  ///< fp8: suffix of the scales' name
};
/// "GPTQ: int4 in groups of 128", for messages.
std::string describe(const StoredQuantization& stored);

/// Of the value of quantization_config in config.json. Throws Error naming `where`, the key and what is implemented.
StoredQuantization read_quantization(const nlohmann::json& object, const std::string& where);

}  // namespace qft::model
