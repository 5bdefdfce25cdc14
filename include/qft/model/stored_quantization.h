// Models whose files hold the layers' linears in 8 or 4 bits already: what config.json's quantization_config says of it.
#pragma once

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
  std::int64_t bits = 4;                     ///< gptq, awq
  std::int64_t columns = 0;                  ///< that share a scale; 0: all of a row
  std::int64_t tile_rows = 1;                ///< fp8: rows that share a scale
  bool act_order = false;                    ///< gptq: g_idx says which group a column belongs to
  bool zeros_less_one = false;               ///< gptq: zero points are written less 1 (its first version)
  const char* scale = ".weight_scale_inv";   ///< fp8: suffix of the scales' name
};
/// "GPTQ, 4 bits", for messages.
std::string describe(const StoredQuantization& stored);

/// Of the value of quantization_config in config.json. Throws Error naming `where`, the key and what is implemented.
StoredQuantization read_quantization(const nlohmann::json& object, const std::string& where);

}  // namespace qft::model
