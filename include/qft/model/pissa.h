// PiSSA (Meng, Wang and Zhang 2024): LoRA that begins as the principal part of each weight, and trains beside what is left of it.
// Its files. Needs no LibTorch.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace qft::model {

/// Beside an adapter: the factors A0 and B0 with which it began, in fp32, named as in the adapter after this prefix.
inline constexpr const char* kPissaInitFile = "pissa_init.safetensors";
inline constexpr const char* kPissaPrefix = "pissa_init.";

/// Throws ConfigError where PiSSA cannot start from the wrapped linears: experts, a rank above that of the weight, a factor
/// lora_alpha of 0, weights that the model's files have quantised.
void require_pissa(const ModelSpec& spec);

/// A file of A0 and B0, under the adapter's names. Throws Error where it is missing or names something else.
std::unique_ptr<io::TensorFile> open_initial_factors(const std::filesystem::path& file);

/// From here on `files` reads W - scaling B0 A0 for what spec.adapter.lora wraps, rounded once to the file's element type. Throws
/// Error where the factors are of another model or of other targets.
void take_out(io::ModelFiles& files, const ModelSpec& spec, std::unique_ptr<io::TensorFile> initial);

/// A factor and the one that it began as, side by side: [A; A0], or [B, -B0] by rows of `rank` columns each. With these W +
/// scaling [B, -B0] [A; A0] is the trained model, W being the model's own weight (PEFT's subtract_mutated_init).
std::vector<float> beside_initial(Role role, std::int64_t rank, std::span<const float> now, std::span<const float> initial);

/// An adapter that was not converted, as the plain one that LoraConfig::plain() describes.
std::unique_ptr<io::TensorFile> as_plain(std::unique_ptr<io::TensorFile> adapter, std::unique_ptr<io::TensorFile> initial);

}  // namespace qft::model
