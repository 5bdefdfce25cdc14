// Measures the speed of collectives and between each pair of ranks, and checks the collectives' results. A pair's rate shows
// which cable is slow; a collective only shows that one is.
#pragma once

#include "qft/comm/communicator.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/core/Device.h>
#include <nlohmann/json_fwd.hpp>

namespace qft::comm {

/// One row of the table. Times are means over repetitions on the slowest rank.
struct BandwidthRow {
  std::size_t bytes = 0;  ///< of the whole buffer
  double microseconds = 0;
  double algorithm_gb_s = 0;  ///< bytes / time, in 1e9 bytes per second
  double bus_gb_s = 0;        ///< algorithm_gb_s * bus_factor(): comparable with the link's rate for any number of ranks
};

/// Returns the bytes on a rank's link per byte of the buffer: 2 (n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter
/// and all_to_all, 1 for broadcast (the convention of NVIDIA's nccl-tests). Throws Error for other kinds.
double bus_factor(OpKind kind, int ranks);

/// Parses "all_reduce", "all_gather", "reduce_scatter", "broadcast" or "all_to_all"; throws ConfigError for another word.
OpKind parse_collective(std::string_view word);

/// Times `kind` on f32 buffers in `device` memory of about `bytes` bytes (rounded to whole elements per rank), for about
/// `seconds`. Collective.
BandwidthRow measure(Communicator& comm, c10::Device device, OpKind kind, std::size_t bytes, double seconds = 0.2);

/// Returns 8 B, 64 B, ... in factors of eight, up to and including `largest`.
std::vector<std::size_t> bandwidth_sizes(std::size_t largest);

/// Returns the table as text with a header line.
std::string format_table(OpKind kind, const std::vector<BandwidthRow>& rows);
nlohmann::json to_json(const BandwidthRow& row);

/// Data that verify_collectives() sends.
struct CollectiveTrial {
  DType dtype = DType::f32;   ///< f64, f32, f16, bf16, i64, i32 or u8
  std::size_t count = 30011;  ///< elements of a rank's slice; too many for the small-message path, and an odd size on purpose
  bool uneven = false;  ///< the slices of all_gather, reduce_scatter and all_to_all differ by rank; every third one is empty
};

/// Runs every collective, and messages around the ring of ranks, with known values on `device` and compares the results. Returns
/// the errors seen on this rank: wrong values, and writes behind the end of a buffer. Collective.
std::vector<std::string> verify_collectives(Communicator& comm, c10::Device device, const CollectiveTrial& trial = {});

/// Bytes per second from rank `from` to rank `to`.
struct PairRate {
  int from = 0, to = 0;
  double bytes_per_second = 0;
};

/// Returns rounds in which each pair of `ranks` ranks meets once, and no rank meets two others at a time: ranks - 1 rounds, one
/// more if their number is odd. A pair's lower rank comes first.
std::vector<std::vector<std::pair<int, int>>> pair_rounds(int ranks);

/// Measures both directions of every pair, all pairs of a round at once, for about `seconds` per direction, with buffers in
/// `device` memory. All ranks get all rates. Collective.
std::vector<PairRate> measure_pairs(Communicator& comm, c10::Device device, double seconds);

}  // namespace qft::comm
