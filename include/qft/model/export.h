// A whole model in Hugging Face layout from a base model and, perhaps, an adapter. Needs no LibTorch at run time, but for
// export_code().
#pragma once

#include "qft/core/dtype.h"
#include "qft/io/storage.h"
#include "qft/model/tokenizer_changes.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace qft::model {

/// Of one file of a model, at most, unless a tensor alone has more; as transformers has it.
inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

/// How a model is written.
enum class ExportFormat : std::uint8_t {
  safetensors,   ///< in Hugging Face layout
  bitsandbytes,  ///< likewise, the layers' linears as nf4 with double quantisation, as transformers and bitsandbytes have them
  gguf,          ///< a file for llama.cpp: matrices in the type asked for
  gguf_q8_0      ///< likewise, matrices in q8_0
};

/// What needs LibTorch: decoding models that are quantised in their files, and formats other than safetensors.
struct ExportCode;
const ExportCode& export_code();

struct ExportRequest {
  std::filesystem::path base;                       // the model's directory
  std::filesystem::path adapter;                    // a PEFT adapter; empty: none, the model is written as it is
  std::vector<std::filesystem::path> earlier = {};  // adapters that are merged before it, in order
  std::filesystem::path tokenizer;                  // where the tokenizer's files are; often `base`
  std::filesystem::path target;                     // appears whole or not at all; must not exist, or be empty
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
  std::optional<DType> dtype = {};  // of every tensor, and in config.json; absent: each keeps its own
  ExportFormat format = ExportFormat::safetensors;
  const ExportCode* code = nullptr;  // export_code(), or what needs it is refused
  std::string config = {};           // the text of config.json; empty: that of `base`. Not for GGUF
  std::string problem_type = {};     // of a classifier, for config.json; empty: as that has it
  TokenizerChanges changes = {};     // to what `tokenizer` has, and to the end tokens of `base`
};

struct ExportReport {
  // All, those that the adapter changed, those of another element type, and those beside the decoder that stay as they are.
  std::int64_t tensors = 0, merged = 0, converted = 0, kept = 0;
  std::uint64_t bytes = 0;  // of tensors
  // Of the linears that are written in 4 bits, relative to their norm: what rounding changed, and what the adapter did.
  double rounding = 0.0, adapter = 0.0;
};

/// Writes what the adapter has whole, else W + scaling B A (with DoRA each row times its magnitude over its norm), summed in fp32
/// (fp64 for a tensor that is and stays fp64) and rounded once to the element type of the target; tensors without an adapter are
/// copied or converted. Rows of one tensor in memory at a time (the whole tensor in fp32 where it is quantised in the files or in
/// the export, or written to GGUF), on all cores of the process. config.json and the files of tokenizer and processor are copied,
/// with request.changes. Throws Error
/// where base and adapters do not belong together or are damaged, or where the format has no words for the model; ConfigError
/// where `target` is in use, or as merge_adapters().
ExportReport export_model(io::Storage& storage, const ExportRequest& request);

}  // namespace qft::model
