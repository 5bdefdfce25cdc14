#include "qft/data/preprocess.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/core/units.h"
#include "qft/data/pack_reader.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <nlohmann/json.hpp>

namespace qft::data {
namespace {

// Each rank reads some of the datasets for their hashes.
std::vector<std::string> hash_sources(const Corpus& corpus, comm::Communicator& comm) {
  std::vector<std::string> hashes(corpus.datasets().size());
  nlohmann::json mine = nlohmann::json::object();
  for (std::size_t d = 0; d < hashes.size(); ++d)
    if (d % static_cast<std::size_t>(comm.size()) == static_cast<std::size_t>(comm.rank()))
      mine[std::to_string(d)] = corpus.source_hash(d);
  for (const std::string& text : comm::all_gather_strings(comm, mine.dump())) {
    const nlohmann::json theirs = nlohmann::json::parse(text);
    for (const auto& [d, hash] : theirs.items()) hashes[std::stoul(d)] = hash.get<std::string>();
  }
  return hashes;
}

// The counts of a pack that is there and has this fingerprint; a broken or other file is none.
std::optional<PackSummary> find_current(const std::filesystem::path& path, const std::string& fingerprint) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  try {
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
    log::warn("{}: {}: it is made again", path.string(), e.what());
    return std::nullopt;
  }
}

void log_result(const std::filesystem::path& path, const PackReport& report) {
  const PackSummary& s = report.summary;
  log::info("packed {} records into {} items, {} tokens ({} to learn), {}: {}", s.records, s.items, s.tokens,
            s.labels, format_bytes(static_cast<double>(s.file_bytes)), path.string());
  if (s.truncated > 0) log::info("{} records were cut to cutoff_len", s.truncated);
  if (s.dropped == 0) return;
  const std::string reasons = describe(report.dropped);
  log::warn("{} of {} records were left out{}{}", s.dropped, s.records, reasons.empty() ? "" : ": ", reasons);
}

}  // namespace

std::string describe(const DropCounts& dropped) {
  std::string text;
  for (std::size_t i = 0; i < dropped.size(); ++i)
    if (dropped[i] > 0)
      text +=
          fmt::format("{}{} {}", text.empty() ? "" : ", ", dropped[i], describe(static_cast<DropReason>(i)));
  return text;
}

PackReport pack_datasets(const config::RunConfig& config, CorpusPart part, comm::Communicator& comm,
                         const std::filesystem::path& path) {
  std::shared_ptr<const Corpus> corpus;
  comm::agreed(comm, [&] { corpus = Corpus::open(config, part); });
  const PackAttributes attributes = corpus->attributes(hash_sources(*corpus, comm));

  PackReport report;
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    if (auto current = find_current(path, attributes.fingerprint())) {
      report.summary = *current;
      report.was_current = true;
    }
  });
  report.was_current = comm::broadcast_value(comm, static_cast<int>(report.was_current)) != 0;
  if (report.was_current) {
    if (comm.rank() == 0) log::info("{} is up to date: {} items", path.string(), report.summary.items);
    return report;
  }

  PackBuilder builder(comm, path, attributes);
  Progress bar("packing", static_cast<std::int64_t>(corpus->num_chunks()), comm.rank() == 0);
  builder.on_progress([&](const PackProgress& done) {
    // Of this rank; the others are about as far.
    const std::size_t all =
        std::min(done.chunks * static_cast<std::size_t>(comm.size()), corpus->num_chunks());
    bar.update(static_cast<std::int64_t>(all), fmt::format("{} tokens here", done.tokens));
  });
  try {
    report.summary = builder.build(corpus->num_chunks(), [&](std::size_t chunk, PackSink& sink) {
      const std::vector<RecordCounts> counts = corpus->encode_chunk(chunk, sink);
      for (std::size_t d = 0; d < counts.size(); ++d) {
        sink.count(static_cast<std::int32_t>(d), counts[d].records, counts[d].all_dropped(),
                   counts[d].truncated);
        sink.count_bytes(counts[d].bytes);
        for (std::size_t i = 0; i < kDropReasons; ++i) report.dropped[i] += counts[d].dropped[i];
      }
    });
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    comm.host().all_reduce(report.dropped.data(), kDropReasons, DType::i64);  // build() throws on all ranks
    const std::string reasons = describe(report.dropped);
    if (reasons.empty()) throw;
    fail("{} (records left out: {})", error.what(), reasons);
  }
  comm.host().all_reduce(report.dropped.data(), kDropReasons, DType::i64);
  bar.clear();
  if (comm.rank() == 0) log_result(path, report);
  return report;
}

}  // namespace qft::data
