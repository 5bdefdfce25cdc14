// Writes a whole model in Hugging Face layout from a base model and an optional adapter. Only export_code() needs LibTorch at run
// time.
#pragma once

#include "qft/core/dtype.h"
#include "qft/io/storage.h"
#include "qft/model/tokenizer_changes.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace qft::model {

/// Default maximum size of one model file, unless a single tensor is larger; transformers' default.
inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

/// File format of an exported model.
enum class ExportFormat : std::uint8_t {
  safetensors,  ///< in Hugging Face layout
  /// Safetensors with the layers' linears as nf4 with double quantisation, as transformers and bitsandbytes write them.
  bitsandbytes,
  gguf,      ///< one file for llama.cpp, matrices in the requested type
  gguf_q8_0  ///< one file for llama.cpp, matrices in q8_0
};

/// Code that needs LibTorch: decoding models with quantised files, and all formats except safetensors.
struct ExportCode;
const ExportCode& export_code();

struct ExportRequest {
  std::filesystem::path base;                       // the model's directory
  std::filesystem::path adapter;                    // a PEFT adapter; empty: none, the model is written unchanged
  std::vector<std::filesystem::path> earlier = {};  // adapters to merge before `adapter`, in order
  std::filesystem::path tokenizer;                  // folder of the tokenizer's files, often `base`
  std::filesystem::path target;                     // appears complete or not at all; must be empty or not exist
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
  std::optional<DType> dtype = {};  // for every tensor and config.json; absent: each keeps its own
  ExportFormat format = ExportFormat::safetensors;
  const ExportCode* code = nullptr;  // export_code(); nullptr: requests that need LibTorch are rejected
  std::string config = {};           // text of config.json; empty: that of `base`. Not for GGUF
  std::string problem_type = {};     // a classifier's, for config.json; empty: unchanged
  TokenizerChanges changes = {};     // applied to the files in `tokenizer` and the end tokens in `base`
  // Embedding models and rerankers with modules.json have tokenizer's files that fit it: they are written instead of those in
  // `tokenizer` (if it is not `base`, only the adapter's), without `changes`. true: `tokenizer` is used for them too.
  bool fixed_tokenizer = false;
};

struct ExportReport {
  // Counts: all tensors; changed by the adapter; converted to another element type; not in the decoder and kept unchanged.
  std::int64_t tensors = 0, merged = 0, converted = 0, kept = 0;
  std::uint64_t bytes = 0;  // of tensors
  // Relative to the norm of the linears written in 4 bits: the rounding error and the adapter's change.
  double rounding = 0.0, adapter = 0.0;
};

/// Writes the model. A tensor that the adapter has in full replaces the base's; every other adapted tensor becomes W + scaling B
/// A (with DoRA each row is then multiplied by its magnitude over its norm), summed in fp32 (fp64 for a tensor that is and stays
/// fp64) and rounded once to the target's element type. Tensors without an adapter are copied or converted. Memory: rows of one
/// tensor at a time (the whole tensor in fp32 if the files or the export quantise it, or for GGUF). Uses all cores of the
/// process. Copies config.json, the files of tokenizer and processor with request.changes, and those of sentence-transformers
/// (model/sentence_files.h) of the adapter or the base. Throws Error if base and adapters
/// do not match or are damaged, or if the format cannot represent the model; ConfigError if `target` is in use, or as
/// merge_adapters().
ExportReport export_model(io::Storage& storage, const ExportRequest& request);

}  // namespace qft::model
