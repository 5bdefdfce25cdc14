// Writing a pack: ranks encode source chunks into spill parts, then all assemble one HDF5 file in parallel.
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

/// Takes the items of one chunk, in source order, and what became of the other records. Throws Error on an
/// item that breaks the pack's rules (an empty sequence, an id outside the vocabulary, spans out of order).
class PackSink : public encode::ItemSink {
 public:
  PackSink(const PackAttributes& attributes, PackPart& part) : attributes_(attributes), part_(part) {}
  void add(encode::EncodedItem&& item) override;
  void leave_out(std::int32_t dataset, encode::DropReason reason, const std::string& what) override;
  /// Records of `dataset` read, dropped, and cut to cutoff_len, added to what was said before.
  void count(std::int32_t dataset, std::int64_t records, std::int64_t dropped, std::int64_t truncated);
  /// Source bytes consumed, for progress.
  void count_bytes(std::int64_t bytes);

 private:
  void check_sequence(const encode::EncodedSequence& sequence) const;
  void check_dataset(std::int32_t dataset) const;

  const PackAttributes& attributes_;
  PackPart& part_;
};

/// What this rank has done so far, chunks of an earlier, interrupted build included once it has checked them.
struct PackProgress {
  std::size_t chunks = 0;
  std::int64_t items = 0, tokens = 0, source_bytes = 0;
};

struct PackSummary {
  std::int64_t items = 0, sequences = 0, tokens = 0, labels = 0;
  std::int64_t records = 0, dropped = 0, truncated = 0;
  std::int64_t file_bytes = 0;
  std::size_t chunks = 0, chunks_reused = 0;  // reused: of an interrupted build
  std::vector<std::string> skipped;           // "file:line: why", in source order; known to build() only
  encode::Drops drops;                        // of all datasets; likewise
};

/// Builds one pack; at most one build of a path at a time. Parts lie in <folder>/tmp-<file name>.parts, which
/// every rank must see, and take as much room as the pack; they are kept when a build is killed or fails, so
/// that the next one with the same inputs goes on from there, and removed once the pack is in place.
class PackBuilder {
 public:
  using EncodeChunk = std::function<void(std::size_t chunk, PackSink& sink)>;

  /// `workers`: threads of this rank that encode and write.
  PackBuilder(comm::Communicator& comm, std::filesystem::path path, PackAttributes attributes, int workers = 1);

  /// The counts of an existing pack, if it was made of the same inputs; nothing for a broken or another file.
  /// Collective; all ranks get the same.
  std::optional<PackSummary> find_current();

  /// Called after every chunk, on the worker that did it, one call at a time.
  void on_progress(std::function<void(const PackProgress&)> progress) { progress_ = std::move(progress); }

  /// Collective. Chunk c of 0 .. num_chunks-1 holds source records before those of chunk c + 1; any worker
  /// of any rank may be asked for any chunk, each chunk is asked for once. The file is byte for byte the same
  /// for any number of ranks and workers and appears under its name whole or not at all, replacing an earlier
  /// one. Throws the same Error on all ranks where one fails: encode_chunk's own, a full disk (naming the
  /// file), no items at all, a folder that ranks do not share.
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
