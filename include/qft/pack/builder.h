// Writes a pack: ranks encode source chunks into spill parts, then all ranks assemble one HDF5 file in parallel.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/pack/format.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qft::pack {

struct PackPart;
struct PartSummary;

/// Receives a chunk's items in source order, and the fate of its other records. Throws Error for an item that breaks the pack's
/// rules (an empty sequence, an id outside the vocabulary, spans out of order).
class PackSink : public encode::ItemSink {
 public:
  PackSink(const PackAttributes& attributes, PackPart& part) : attributes_(attributes), part_(part) {}
  void add(encode::EncodedItem&& item) override;
  void drop(std::int32_t dataset, encode::DropReason reason, const std::string& what) override;
  /// Adds counts of `dataset`: records read, dropped, and cut to cutoff_len.
  void count(std::int32_t dataset, std::int64_t records, std::int64_t dropped, std::int64_t truncated);
  /// Adds consumed source bytes, for progress.
  void count_bytes(std::int64_t bytes);
  /// Adds negatives that are empty texts and were left out of their items, for the log.
  void count_empty_negatives(std::int64_t texts);

 private:
  void check_sequence(const encode::EncodedSequence& sequence) const;
  void check_dataset(std::int32_t dataset) const;

  const PackAttributes& attributes_;
  PackPart& part_;
};

/// The progress of this rank, including chunks of an earlier, interrupted build after their check.
struct PackProgress {
  std::size_t chunks = 0;
  std::int64_t items = 0, tokens = 0, source_bytes = 0;
};

struct PackSummary {
  std::int64_t items = 0, sequences = 0, tokens = 0, labels = 0;
  std::int64_t records = 0, dropped = 0, truncated = 0;
  std::int64_t empty_negatives = 0;  // left out of items; set only by build()
  std::int64_t file_bytes = 0;
  std::size_t chunks = 0, chunks_reused = 0;  // reused: from an interrupted build
  std::vector<std::string> skipped;           // "file:line: why", in source order; set only by build()
  encode::Drops drops;                        // over all datasets; set only by build()
};

/// Builds one pack; at most one build of a path at a time. Parts are in <folder>/tmp-<file name>.parts, which every rank must
/// see; they take as much space as the pack. A killed or failed build keeps them, so that the next build with the same inputs
/// continues from there. They are removed once the pack is in place.
class PackBuilder {
 public:
  using EncodeChunk = std::function<void(std::size_t chunk, PackSink& sink)>;

  /// `workers`: threads of this rank for encoding and writing.
  PackBuilder(comm::Communicator& comm, std::filesystem::path path, PackAttributes attributes, int workers = 1);

  /// Returns the counts of an existing pack made from the same inputs; nullopt for a broken file or a pack of other inputs.
  /// Collective; the same on all ranks.
  std::optional<PackSummary> find_current();

  /// Sets a callback after every chunk. It runs on the worker that did the chunk, one call at a time.
  void on_progress(std::function<void(const PackProgress&)> progress) { progress_ = std::move(progress); }

  /// Collective. Builds the pack from chunks 0 .. num_chunks-1; chunk c holds source records before those in chunk c + 1.
  /// encode_chunk() is called once per chunk, on any worker of any rank. The file has the same bytes for any number of ranks and
  /// workers. It appears under its name complete or not at all, and replaces an earlier one. If one rank fails, throws the same
  /// Error on all ranks: encode_chunk's error, a full disk (with the file), no items at all, a folder that ranks do not share.
  PackSummary build(std::size_t num_chunks, const EncodeChunk& encode_chunk);

 private:
  struct Parts;
  void prepare_folder();
  void load_finished_parts(Parts& parts);
  void encode_remaining(Parts& parts, const EncodeChunk& encode_chunk);
  void encode_one(Parts& parts, std::size_t chunk, const EncodeChunk& encode_chunk);
  void note(Parts& parts, std::size_t chunk, const PackPart& part);
  void commit(const std::filesystem::path& assembled) const;
  PackSummary summarise(const std::vector<PartSummary>& parts, std::size_t reused) const;
  std::string part_key(std::size_t chunk, std::size_t num_chunks) const;
  std::filesystem::path part_path(std::size_t chunk) const;

  comm::Communicator& comm_;
  std::filesystem::path path_, folder_;
  PackAttributes attributes_;
  int workers_;
  std::function<void(const PackProgress&)> progress_;
  PackProgress done_;
};

}  // namespace qft::pack
