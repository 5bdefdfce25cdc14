// Turns a run's datasets into a pack on disk, in parallel: for qft-pack, and for qft train if no pack is given.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/pack/builder.h"
#include "qft/pack/corpus.h"

#include <cstdint>
#include <filesystem>
#include <functional>

namespace qft::pack {

struct PackReport {
  bool was_current = false;  // the file already existed with the same inputs: nothing was done
  PackSummary summary;       // the file's counts, without chunks if was_current
};

inline constexpr int kMaxWorkers = 1024;

/// Returns the threads for encoding in this rank: preprocessing_num_workers, limited to the rank's share of the cores that it may
/// run on; the whole share if the key is not given.
int default_workers(const config::RunConfig& config);

/// Called on all ranks with the pack's attributes before anything is written. An exception from it is thrown on all ranks.
using BeforePacking = std::function<void(const PackAttributes&, comm::Communicator&)>;

/// Makes `path` the pack of the datasets in `config`, unless it already is. Collective; all ranks must see the folder. Throws the
/// same Error on all ranks. Rank 0 logs the result, with the number of dropped records and the reasons.
PackReport pack_datasets(const config::RunConfig& config, CorpusPart part, comm::Communicator& comm,
                         const std::filesystem::path& path, int workers, const BeforePacking& before = {});

/// The work that pack_datasets() would have to do.
struct PackPreview {
  bool is_current = false;                   // the file already exists with the same inputs
  std::int64_t records = 0, vocab_size = 0;  // token ids that the pack will have
  std::size_t chunks = 0, chunks_read = 0;
};

/// Opens the datasets like pack_datasets() and encodes up to kChunksRead chunks, spread over all of them, without writing
/// anything. Collective; throws the same Error on all ranks as packing these chunks would.
PackPreview preview_datasets(const config::RunConfig& config, CorpusPart part, comm::Communicator& comm,
                             const std::filesystem::path& path, const BeforePacking& before = {});

inline constexpr std::size_t kChunksRead = 64;  // about a megabyte each

}  // namespace qft::pack
