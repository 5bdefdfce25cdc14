// Saves models in the file layouts that transformers and PEFT read.
#pragma once

#include "qft/checkpoint/manifest.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/io/storage.h"

#include <filesystem>
#include <functional>
#include <vector>

namespace qft::train {

/// The ranks that write: ranks of `comm` below `writers` share a model's shards; rank 0 writes everything else.
struct Writers {
  comm::Communicator& comm;  ///< the instance's ranks
  int writers = 1;
  int rank() const { return comm.rank(); }
};

/// Writes a model with the tokenizer's files into an existing directory: with LoRA adapter_model.safetensors and
/// adapter_config.json; for full training the model shards, the index and config.json. Returns the files that this rank wrote.
/// Collective. A failure on one rank is thrown there after all weights have been gathered, unit by unit; if memory for gathering
/// is too small on one rank, all ranks throw.
std::vector<checkpoint::FileRecord> save_model(const config::RunConfig& config, engine::Instance& instance, io::Storage& storage,
                                               const std::filesystem::path& dir, const Writers& who);

/// The same in two parts. stage_model() is collective and copies to host memory the data that this rank will write. The returned
/// function writes the files into an existing directory: from any thread, not collective. The weights may change in between.
/// `config` must outlive the function.
using WriteModel = std::function<std::vector<checkpoint::FileRecord>(io::Storage&, const std::filesystem::path&)>;
WriteModel stage_model(const config::RunConfig& config, engine::Instance& instance, const Writers& who);

/// Runs `qft export`: model::export_model() with the run's model, adapter, export_dir and infer_dtype. Throws ConfigError if
/// there is neither an adapter to merge nor another element type to write.
void export_model(const config::RunConfig& config, io::Storage& storage);

}  // namespace qft::train
