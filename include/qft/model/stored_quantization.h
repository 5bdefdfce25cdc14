// Models whose files already hold the layers' linears in 8 or 4 bits, as config.json's quantization_config describes.
#pragma once

#include "qft/ops/quantized_layout.h"

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace qft::model {

enum class StoredMethod : std::uint8_t {
  bitsandbytes,  ///< nf4, fp4 or int8, as transformers saves them
  fp8,           ///< e4m3 with a scale per tile, row or tensor: transformers' "fp8", compressed-tensors' "float-quantized"
  gptq,          ///< Frantar et al. 2022, in the tensors that AutoGPTQ and GPTQModel write
  awq            ///< Lin et al. 2023, in the tensors of AutoAWQ's "gemm"
};

struct StoredQuantization {
  StoredMethod method = StoredMethod::bitsandbytes;
  ops::Quantization kind = {};   ///< format of the quantised linears; for bitsandbytes, each weight's files give its format
  bool zeros_minus_one = false;  ///< gptq: stored zero points are one too small (format version 1)
  const char* scale = ".weight_scale_inv";  ///< fp8: suffix of the scales' names
};
/// Returns a description for messages: "GPTQ: int4 in groups of 128".
std::string describe(const StoredQuantization& stored);

/// Reads the value of quantization_config in config.json. Throws Error naming `where`, the key and the implemented values.
StoredQuantization read_quantization(const nlohmann::json& object, const std::string& where);

}  // namespace qft::model
