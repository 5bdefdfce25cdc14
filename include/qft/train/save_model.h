// Model files in the layouts that transformers and PEFT read.
#pragma once

#include "qft/checkpoint/manifest.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace qft::train {

/// Which ranks write: those of `comm` below `writers` share a model's shards; rank 0 writes everything else.
struct Writers {
  comm::Communicator& comm;  ///< the instance's ranks
  int writers = 1;
  int rank() const { return comm.rank(); }
};

/// adapter_model.safetensors and adapter_config.json (LoRA), or model shards, index and config.json (full), with the
/// tokenizer's files, into an existing directory. Collective; a failure on one rank is thrown there once all weights
/// have been gathered, a unit at a time, but too little memory to gather on all. Returns what this rank has written.
std::vector<checkpoint::FileRecord> save_model(const config::RunConfig& config, engine::Instance& instance, io::Storage& storage,
                                               const std::filesystem::path& dir, const Writers& who);

/// The same in two parts: copies to host memory what this rank will write (collective), and returns what writes it: from
/// any thread, into an existing directory, not collective. The weights may change in between; `config` must outlive it.
using WriteModel = std::function<std::vector<checkpoint::FileRecord>(io::Storage&, const std::filesystem::path&)>;
WriteModel stage_model(const config::RunConfig& config, engine::Instance& instance, const Writers& who);

/// `qft export`: model::export_model() of the run's model, adapter, export_dir and infer_dtype. Throws ConfigError where there is
/// neither an adapter to merge nor another element type to write.
void export_model(const config::RunConfig& config, io::Storage& storage);

}  // namespace qft::train
