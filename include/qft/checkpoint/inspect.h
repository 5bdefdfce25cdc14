// Summarises a checkpoint, adapter or model directory, for people and for scripts.
#pragma once

#include "qft/checkpoint/verify.h"

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

namespace qft::checkpoint {

/// Returns the keys (absent if unknown): path, kind ("qft checkpoint" | "PEFT adapter" | "Hugging Face model" |
/// "safetensors files"), manifest (bool), step, epoch, loss, world_size, strategy, global_batch_size,
/// qft_version, run, parent, base_model, adapter {type, rank, alpha, targets}, architecture, tensors, parameters, dtypes
/// {name: bytes}, bytes, files [{name, bytes}], age_seconds. Throws Error if `dir` is none of these kinds.
nlohmann::ordered_json summarize(const std::filesystem::path& dir);

/// Returns the summary as aligned lines of text.
std::string format_summary(const nlohmann::ordered_json& summary);

/// Returns the keys path, ok, manifest (bool), files, bytes, tensors, errors and warnings (lists of text).
nlohmann::ordered_json to_json(const std::filesystem::path& dir, const VerifyReport& report);
/// Returns one line per finding, then a verdict.
std::string format_report(const std::filesystem::path& dir, const VerifyReport& report);

}  // namespace qft::checkpoint
