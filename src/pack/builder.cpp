#include "qft/pack/builder.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/log.h"
#include "qft/core/thread.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"
#include "qft/pack/reader.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <numeric>
#include <unistd.h>

#include "assembly.h"
#include "part.h"

namespace qft::pack {

using nlohmann::json;

namespace {

constexpr std::string_view kAssembled = "pack.h5", kFailed = "failed", kClaim = "claim-";

/// Creates a new file; returns false if it already exists.
bool create_exclusively(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST) return false;
  require(fd >= 0, "cannot create '{}': {}", path.string(), std::strerror(errno));
  ::close(fd);
  return true;
}

/// Returns the counts of the pack at `path` if it has this fingerprint.
std::optional<PackSummary> summary_of_current(const std::filesystem::path& path, const std::string& fingerprint) try {
  const auto pack = PackReader::open(path);
  if (pack->fingerprint() != fingerprint) return std::nullopt;
  PackSummary summary;
  summary.items = pack->num_items();
  summary.sequences = pack->num_sequences();
  summary.tokens = pack->num_tokens();
  const auto labels = pack->item_labels();
  summary.labels = std::accumulate(labels.begin(), labels.end(), INT64_C(0));
  for (const PackSource& source : pack->attributes().sources) {
    summary.records += source.records;
    summary.dropped += source.dropped;
    summary.truncated += source.truncated;
  }
  summary.file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
  return summary;
} catch (const Error& e) {
  log::warn("{}: {}: it is packed again", path.string(), e.what());
  return std::nullopt;
}

}  // namespace

/// The finished chunks, known to all ranks; nullopt for unfinished ones.
struct PackBuilder::Parts {
  std::vector<std::optional<PartSummary>> known;
  json unshared = json::array();  // this rank's findings since the last exchange: [chunk, summary]
  std::size_t reused = 0;
  std::mutex mutex;  // guards unshared, and the builder's done_

  void exchange(comm::Communicator& comm) {
    for (const std::string& text : comm::all_gather_strings(comm, unshared.dump()))
      for (const json& item : json::parse(text)) known[item.at(0).get<std::size_t>()] = PartSummary::from_json(item.at(1));
    unshared = json::array();
  }
  std::vector<std::size_t> unknown() const {
    std::vector<std::size_t> chunks;
    for (std::size_t c = 0; c < known.size(); ++c)
      if (!known[c]) chunks.push_back(c);
    return chunks;
  }
};

PackBuilder::PackBuilder(comm::Communicator& comm, std::filesystem::path path, PackAttributes attributes, int workers)
    : comm_(comm), path_(std::move(path)), attributes_(std::move(attributes)), workers_(workers) {
  QFT_ASSERT(workers >= 1, "{} workers", workers);
  require(path_.has_filename(), "'{}' does not name a file for the pack", path_.string());
  const std::filesystem::path parent = path_.has_parent_path() ? path_.parent_path() : ".";
  folder_ = parent / (std::string(io::kTempPrefix) + path_.filename().string() + ".parts");
}

std::filesystem::path PackBuilder::part_path(std::size_t chunk) const {
  return folder_ / fmt::format("part-{:06}", chunk);
}

std::string PackBuilder::part_key(std::size_t chunk, std::size_t num_chunks) const {
  return fmt::format("{}:{}/{}", attributes_.fingerprint(), chunk, num_chunks);
}

/// Removes everything but parts from the folder, and checks that all ranks see the folder.
void PackBuilder::prepare_folder() {
  const std::string token = comm::on_root(comm_, [&] {
    require(!std::filesystem::is_directory(path_), "cannot write the pack: '{}' is a directory", path_.string());
    io::probe_writable(folder_);
    io::Storage& storage = io::posix_storage();
    for (const std::string& name : storage.list(folder_))
      if (!name.starts_with("part-")) io::remove_tree(storage, folder_ / name);
    std::string name = fmt::format("seen-by-all-{}-{}", ::getpid(), hash_hex(fmt::format("{}", ::time(nullptr))));
    create_exclusively(folder_ / name);
    return name;
  });
  comm::agreed(comm_, [&] {
    require(std::filesystem::exists(folder_ / token),
            "this rank does not see '{}', which rank 0 made: put the pack into a folder that all nodes share, or set "
            "stage_to to a folder on each node's own disk, to which it is copied over MPI",
            folder_.string());
  });
}

/// Loads intact parts of an interrupted build with the same inputs; removes the others.
void PackBuilder::load_finished_parts(Parts& parts) {
  comm::agreed(comm_, [&] {
    for (std::size_t c = static_cast<std::size_t>(comm_.rank()); c < parts.known.size();
         c += static_cast<std::size_t>(comm_.size())) {
      if (!std::filesystem::exists(part_path(c))) continue;
      try {
        const PackPart part = read_part(part_path(c), part_key(c, parts.known.size()));
        note(parts, c, part);
      } catch (const Error& e) {
        log::debug("a part of an earlier build is encoded again: {}", e.what());
        std::filesystem::remove(part_path(c));
      }
    }
  });
  parts.exchange(comm_);
  parts.reused = parts.known.size() - parts.unknown().size();
}

void PackBuilder::note(Parts& parts, std::size_t chunk, const PackPart& part) {
  const std::lock_guard lock(parts.mutex);
  parts.unshared.push_back({chunk, part.summary.to_json()});
  done_.chunks += 1;
  done_.items += static_cast<std::int64_t>(part.item_tokens.size());
  done_.tokens += static_cast<std::int64_t>(part.tokens.size());
  done_.source_bytes += part.summary.source_bytes;
  if (progress_) progress_(done_);
}

void PackBuilder::encode_one(Parts& parts, std::size_t chunk, const EncodeChunk& encode_chunk) {
  PackPart part;
  part.summary.sources.resize(attributes_.sources.size());
  part.summary.drops.resize(attributes_.sources.size());
  PackSink sink(attributes_, part);
  encode_chunk(chunk, sink);
  write_part(part_path(chunk), part_key(chunk, parts.known.size()), part);
  note(parts, chunk, part);
}

/// Each rank begins in its own range of the open chunks and then helps the others: the first to create a chunk's claim file
/// gets the chunk.
void PackBuilder::encode_remaining(Parts& parts, const EncodeChunk& encode_chunk) {
  const std::vector<std::size_t> open = parts.unknown();
  const bool shared = comm_.size() > 1;
  const std::size_t begin = open.size() * static_cast<std::size_t>(comm_.rank()) / static_cast<std::size_t>(comm_.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  comm::agreed(comm_, [&] {
    run_workers(workers_, [&](int) {
      for (std::size_t i; (i = next++) < open.size() && !failed;) {
        const std::size_t chunk = open[(begin + i) % open.size()];
        if (shared && !create_exclusively(folder_ / fmt::format("{}{}", kClaim, chunk))) continue;
        if (shared && std::filesystem::exists(folder_ / kFailed)) return;
        try {
          encode_one(parts, chunk, encode_chunk);
        } catch (...) {
          failed = true;
          if (shared) create_exclusively(folder_ / kFailed);  // makes the others stop before their next chunk
          throw;
        }
      }
    });
  });
  parts.exchange(comm_);
}

std::optional<PackSummary> PackBuilder::find_current() {
  std::optional<PackSummary> summary;
  const std::string fingerprint = attributes_.fingerprint();
  comm::agreed(comm_, [&] {
    std::error_code error;
    if (comm_.rank() == 0 && std::filesystem::is_regular_file(path_, error)) summary = summary_of_current(path_, fingerprint);
    // A build that was killed after its commit left its parts. A process that may only read here ignores the error.
    if (summary) std::filesystem::remove_all(folder_, error);
  });
  // The other ranks only need to know that there is nothing to do.
  if (comm::broadcast_value(comm_, static_cast<int>(summary.has_value())) == 0) return std::nullopt;
  return comm_.rank() == 0 ? summary : PackSummary{};
}

PackSummary PackBuilder::build(std::size_t num_chunks, const EncodeChunk& encode_chunk) {
  done_ = {};
  prepare_folder();
  Parts parts;
  parts.known.resize(num_chunks);
  load_finished_parts(parts);
  if (parts.reused > 0 && comm_.rank() == 0)
    log::info("{} of {} chunks are reused from an earlier build of '{}'", parts.reused, num_chunks, path_.string());
  encode_remaining(parts, encode_chunk);

  std::vector<PartSummary> summaries;
  for (std::size_t c = 0; c < num_chunks; ++c) {
    require(parts.known[c].has_value(), "chunk {} of '{}' was not encoded by any rank", c, path_.string());
    summaries.push_back(std::move(*parts.known[c]));
  }
  complete_attributes(attributes_, summaries);
  const std::filesystem::path assembled = folder_ / kAssembled;
  try {
    assemble_pack(comm_, assembled, attributes_, summaries, workers_,
                  [&](std::size_t chunk) { return read_part(part_path(chunk), part_key(chunk, num_chunks)); });
  } catch (...) {
    std::error_code ignored;
    if (comm_.rank() == 0) std::filesystem::remove(assembled, ignored);
    throw;
  }
  commit(assembled);
  return summarise(summaries, parts.reused);
}

void PackBuilder::commit(const std::filesystem::path& assembled) const {
  comm::agreed(comm_, [&] {
    if (comm_.rank() != 0) return;
    PackReader::open(assembled);
    io::Storage& storage = io::posix_storage();
    io::sync_file(assembled);
    storage.rename(assembled, path_);
    storage.sync_directory(folder_.parent_path());
    io::remove_tree(storage, folder_);
  });
}

PackSummary PackBuilder::summarise(const std::vector<PartSummary>& parts, std::size_t reused) const {
  PackSummary sum;
  for (const PartSummary& part : parts) {
    sum.items += part.elements[index_of(PackArray::item_offsets)];
    sum.sequences += part.elements[index_of(PackArray::sequence_offsets)];
    sum.tokens += part.elements[index_of(PackArray::tokens)];
    sum.labels += part.labels;
    sum.empty_negatives += part.empty_negatives;
    sum.skipped.insert(sum.skipped.end(), part.skipped.begin(), part.skipped.end());
    for (const encode::Drops& drops : part.drops) sum.drops += drops;
  }
  for (const PackSource& source : attributes_.sources) {
    sum.records += source.records;
    sum.dropped += source.dropped;
    sum.truncated += source.truncated;
  }
  sum.file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path_));
  sum.chunks = parts.size();
  sum.chunks_reused = reused;
  return sum;
}

}  // namespace qft::pack
