// Files of PiSSA (Meng, Wang and Zhang 2024): LoRA that starts as each weight's principal part and trains beside the residual.
// Needs no LibTorch.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace qft::model {

/// Lies beside an adapter: its initial factors A0 and B0 in fp32, named as in the adapter, after this prefix.
inline constexpr const char* kPissaInitFile = "pissa_init.safetensors";
inline constexpr const char* kPissaPrefix = "pissa_init.";

/// Throws ConfigError if PiSSA cannot start from the wrapped linears: experts, a LoRA rank above the weight's rank, lora_alpha 0,
/// or weights that the model's files hold quantised.
void require_pissa(const ModelSpec& spec);

/// Opens a file with A0 and B0 and returns them under the adapter's names. Throws Error if the file is missing or has other
/// names.
std::unique_ptr<io::TensorFile> open_initial_factors(const std::filesystem::path& file);

/// Makes `files` return W - scaling B0 A0 for the weights that spec.adapter.lora wraps, rounded once to the file's element type.
/// Throws Error if the factors belong to another model or other targets.
void subtract_initial_factors(io::ModelFiles& files, const ModelSpec& spec, std::unique_ptr<io::TensorFile> initial);

/// Concatenates a trained factor and its initial value: [A; A0], or [B, -B0] with `rank` columns of each per row. W + scaling [B,
/// -B0] [A; A0] is then the trained model, where W is the model's original weight (PEFT's subtract_mutated_init).
std::vector<float> with_initial_factor(Role role, std::int64_t rank, std::span<const float> now, std::span<const float> initial);

/// Returns an unconverted adapter as the plain adapter that LoraConfig::plain() describes.
std::unique_ptr<io::TensorFile> as_plain_adapter(std::unique_ptr<io::TensorFile> adapter,
                                                 std::unique_ptr<io::TensorFile> initial);

}  // namespace qft::model
