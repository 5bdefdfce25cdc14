// From a run's datasets to a pack on disk, in parallel: what qft-pack does, and qft train where no pack is given.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/encode/drop_reason.h"
#include "qft/pack/builder.h"
#include "qft/pack/corpus.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace qft::pack {

struct PackReport {
  bool was_current = false;  // the file was there already, made of the same inputs: nothing was done
  PackSummary summary;       // counts of the file where was_current, without the chunks
};

inline constexpr int kMaxWorkers = 1024;

/// Threads that encode in this rank: preprocessing_num_workers, but at most its share of the cores that it
/// may run on; all of that share where the key is not given.
int default_workers(const config::RunConfig& config);

/// Called on all ranks before anything is written, with what the pack is to be made of; what it throws it throws on all.
using BeforePacking = std::function<void(const PackAttributes&, comm::Communicator&)>;

/// Makes `path` the pack of the datasets that `config` names, unless it is that already. Collective; the folder must be one that
/// all ranks see. Throws the same Error on all ranks. Logs on rank 0 what was done and how many records were left out, and why.
PackReport pack_datasets(const config::RunConfig& config, CorpusPart part, comm::Communicator& comm,
                         const std::filesystem::path& path, int workers, const BeforePacking& before = {});

/// What pack_datasets() would have to do.
struct PackPreview {
  bool is_current = false;                   // the file is there already, made of the same inputs
  std::int64_t records = 0, vocab_size = 0;  // token ids that the pack will have
  std::size_t chunks = 0, chunks_read = 0;
};

/// Opens the datasets as pack_datasets() does, and encodes chunks of their records, up to kChunksRead spread over the whole,
/// without writing anything. Collective; throws the same Error on all ranks as packing these chunks would.
PackPreview look_at_datasets(const config::RunConfig& config, CorpusPart part, comm::Communicator& comm,
                             const std::filesystem::path& path, const BeforePacking& before = {});

inline constexpr std::size_t kChunksRead = 64;  // about a megabyte each

}  // namespace qft::pack
