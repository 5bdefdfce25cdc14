#include "qft/pack/preprocess.h"

#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/core/units.h"
#include "qft/encode/template_comparison.h"
#include "qft/pack/reader.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

namespace qft::pack {

using nlohmann::json;

namespace {

// Shows the build's progress on rank 0.
class BuildProgress {
 public:
  BuildProgress(std::size_t chunks, const comm::Communicator& comm)
      : chunks_(static_cast<std::int64_t>(chunks)), ranks_(comm.size()), bar_("packing", chunks_, comm.rank() == 0) {}

  // `done` counts this rank only; the others are about as far.
  void update(const PackProgress& done) {
    activity::tick();
    bar_.update(std::min(static_cast<std::int64_t>(done.chunks) * ranks_, chunks_),
                speed_of(done.source_bytes * ranks_, done.tokens * ranks_));
  }
  void clear() { bar_.clear(); }
  // Returns "81.2 MB/s, 20.3 M tokens/s", averaged since the start.
  std::string speed_of(std::int64_t bytes, std::int64_t tokens) const {
    const double seconds = std::max(std::chrono::duration<double>(Clock::now() - start_).count(), 1e-6);
    return fmt::format("{}/s, {} tokens/s", format_bytes(static_cast<double>(bytes) / seconds),
                       format_count(static_cast<double>(tokens) / seconds));
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t chunks_, ranks_;
  Progress bar_;
  Clock::time_point start_ = Clock::now();
};

void check_same_inputs(const PackAttributes& attributes, comm::Communicator& comm) {
  const std::string mine = attributes.fingerprint(), first = comm::broadcast_string(comm, mine);
  comm::agreed(comm, [&] {
    require(mine == first,
            "this rank's inputs have the fingerprint {}, rank 0's {}: the files or the tokenizer differ between "
            "the nodes; copy them again",
            mine, first);
  });
}

void log_result(const std::filesystem::path& path, const PackReport& report, const config::RunConfig& config,
                const std::string& speed) {
  const PackSummary& s = report.summary;
  log::info("packed {} into {}, {} tokens{}, {}: {} ({})", count_noun(s.records, "record"), count_noun(s.items, "item"), s.tokens,
            config.stage().token_labels ? fmt::format(" ({} to learn)", s.labels) : "",
            format_bytes(static_cast<double>(s.file_bytes)), path.string(), speed);
  if (s.truncated > 0)
    log::warn("{} of {} ({:.1f}%) are longer than cutoff_len {} and were cut: raise it to keep them whole", s.truncated,
              count_noun(s.records, "record"), 100.0 * static_cast<double>(s.truncated) / static_cast<double>(s.records),
              config.data.cutoff_len);
  if (const std::int64_t more = s.items - (s.records - s.dropped);
      more > 0 && config.stage().sample == encode::SampleKind::conversation)
    log::info(
        "{} more than records: the chat template shows earlier answers differently from the model's output, so that a "
        "conversation makes one sample per such answer, with everything before it",
        count_noun(more, "sample"));
  if (s.empty_negatives > 0)
    log::warn("{} without a text left out of {}", count_noun(s.empty_negatives, "negative"), count_noun(s.items, "item"));
  if (s.dropped == 0) return;
  const std::string reasons = encode::describe(s.drops);
  log::warn("{} of {} dropped{}{}", s.dropped, count_noun(s.records, "record"), reasons.empty() ? "" : ": ", reasons);
}

// Writes <pack>.skipped with a line per record, or removes an earlier build's file.
void list_skipped(const std::vector<std::string>& skipped, std::size_t limit, comm::Communicator& comm,
                  const std::filesystem::path& path) {
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    if (skipped.size() > limit) {
      std::filesystem::remove(path);
      fail("{} broken records, more than on_error_limit {}, the first is {}: repair the data, or raise the limit", skipped.size(),
           limit, skipped.front());
    }
    std::filesystem::path file = path;
    file += ".skipped";
    std::error_code ignored;
    if (skipped.empty()) {
      std::filesystem::remove(file, ignored);
      return;
    }
    std::ofstream out(file, std::ios::trunc);
    for (const std::string& line : skipped) out << line << "\n";
    out.close();
    require(out.good(), "cannot write {}", file.string());
    log::warn("skipped {}: {} lists them", count_noun(static_cast<std::int64_t>(skipped.size()), "broken record"), file.string());
  });
}

bool is_current_pack(const std::filesystem::path& path, const PackAttributes& attributes) {
  try {
    return std::filesystem::is_regular_file(path) && PackReader::open(path)->fingerprint() == attributes.fingerprint();
  } catch (const Error&) {
    return false;  // broken: packing would make it again
  }
}

/// Counts items, labels, and the dropped records of each dataset.
class LabelSink : public encode::ItemSink {
 public:
  explicit LabelSink(std::size_t datasets) : drops(datasets), records(datasets) {}
  void add(encode::EncodedItem&& item) override {
    ++items;
    for (const encode::EncodedSequence& sequence : item.sequences) labels += sequence.num_labels();
  }
  void drop(std::int32_t dataset, encode::DropReason reason, const std::string& what) override {
    drops[static_cast<std::size_t>(dataset)].add(reason, what);
  }
  void count(const std::vector<RecordCounts>& counts) {
    for (std::size_t d = 0; d < counts.size(); ++d) records[d] += counts[d].records;
  }
  /// Adds the other ranks' counts.
  void gather(comm::Communicator& comm) {
    json mine = {{"items", items}, {"labels", labels}, {"records", records}, {"drops", json::array()}};
    for (const encode::Drops& d : drops) mine["drops"].push_back({d.counts, d.first});
    LabelSink all(drops.size());
    for (const std::string& text : comm::all_gather_strings(comm, mine.dump(-1, ' ', false, json::error_handler_t::replace))) {
      const json theirs = json::parse(text);
      all.items += theirs["items"].get<std::int64_t>();
      all.labels += theirs["labels"].get<std::int64_t>();
      for (std::size_t d = 0; d < drops.size(); ++d) {
        all.records[d] += theirs["records"][d].get<std::int64_t>();
        all.drops[d] += encode::Drops{theirs["drops"][d][0], theirs["drops"][d][1]};
      }
    }
    *this = std::move(all);
  }

  std::int64_t items = 0, labels = 0;
  std::vector<encode::Drops> drops;   // per dataset
  std::vector<std::int64_t> records;  // records read, per dataset
};

}  // namespace

PackPreview preview_datasets(const config::RunConfig& config, CorpusPart part, comm::Communicator& comm,
                             const std::filesystem::path& path, const BeforePacking& before) {
  const activity::Phase phase("pack");
  PackPreview preview;
  std::shared_ptr<const Corpus> corpus;
  comm::agreed(comm, [&] { corpus = Corpus::open(config, part); });
  const PackAttributes attributes = corpus->attributes();
  check_same_inputs(attributes, comm);
  preview.is_current = comm::broadcast_value<std::int32_t>(comm, comm.rank() == 0 && is_current_pack(path, attributes)) != 0;
  if (before && !preview.is_current) before(attributes, comm);
  preview.records = corpus->num_records();
  preview.vocab_size = attributes.vocab_size;
  preview.chunks = corpus->num_chunks();
  preview.chunks_read = std::min(preview.chunks, kChunksRead);
  LabelSink sink(corpus->datasets().size());
  comm::agreed(comm, [&] {
    for (std::size_t i = static_cast<std::size_t>(comm.rank()); i < preview.chunks_read;
         i += static_cast<std::size_t>(comm.size())) {
      sink.count(corpus->encode_chunk(i * preview.chunks / preview.chunks_read, sink));
      activity::tick();
    }
  });
  sink.gather(comm);
  encode::Drops drops;
  for (std::size_t d = 0; d < sink.drops.size(); ++d) {
    if (preview.chunks_read == preview.chunks) encode::require_usable(corpus->datasets()[d].name, sink.records[d], sink.drops[d]);
    drops += sink.drops[d];
  }
  const bool labelled = config.stage().token_labels;
  if ((labelled ? sink.labels : sink.items) == 0)
    fail_config(
        "no sample has anything to learn in the {} of {} chunks of records that were read: is cutoff_len {} too short, or are "
        "the {} empty?{}{}",
        preview.chunks_read, preview.chunks, config.data.cutoff_len, labelled ? "answers" : "texts",
        drops.total() == 0 ? "" : " Dropped were ", encode::describe(drops));
  return preview;
}

int default_workers(const config::RunConfig& config) {
  const int sharers = comm::Session::exists() ? comm::Session::current().core_sharers() : 1;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());  // respects the affinity mask
  const std::int64_t share = std::clamp(cores / sharers, 1, kMaxWorkers);
  return static_cast<int>(std::min(share, config.data.preprocessing_num_workers.value_or(share)));
}

PackReport pack_datasets(const config::RunConfig& config, CorpusPart part, comm::Communicator& comm,
                         const std::filesystem::path& path, int workers, const BeforePacking& before) {
  const activity::Phase phase("pack");
  std::shared_ptr<const Corpus> corpus;
  comm::agreed(comm, [&] { corpus = Corpus::open(config, part); });
  check_same_inputs(corpus->attributes(), comm);
  if (comm.rank() == 0 && part == CorpusPart::train)
    for (const std::string& line : encode::compare_with_own(config, corpus->chat_template(), corpus->datasets()))
      log::info("{}", line);

  PackReport report;
  PackBuilder builder(comm, path, corpus->attributes(), workers);
  if (const auto current = builder.find_current()) {
    report = {true, *current};
    if (comm.rank() == 0)
      log::info("pack {} is reused ({} items): its data, tokenizer and settings have not changed", path.string(), current->items);
    return report;
  }

  if (before) before(corpus->attributes(), comm);
  BuildProgress progress(corpus->num_chunks(), comm);
  builder.on_progress([&](const PackProgress& done) { progress.update(done); });
  std::mutex mutex;
  std::int64_t source_bytes = 0;
  report.summary = builder.build(corpus->num_chunks(), [&](std::size_t chunk, PackSink& sink) {
    const std::vector<RecordCounts> counts = corpus->encode_chunk(chunk, sink);
    const std::lock_guard lock(mutex);
    for (std::size_t d = 0; d < counts.size(); ++d) {
      sink.count(static_cast<std::int32_t>(d), counts[d].records, counts[d].all_dropped(), counts[d].truncated);
      sink.count_bytes(counts[d].bytes);
      sink.count_empty_negatives(counts[d].empty_negatives);
      source_bytes += counts[d].bytes;
    }
  });
  source_bytes = comm::all_reduce_value(comm, source_bytes);
  progress.clear();
  list_skipped(report.summary.skipped, corpus->max_skipped(), comm, path);
  if (comm.rank() == 0) log_result(path, report, config, progress.speed_of(source_bytes, report.summary.tokens));
  return report;
}

}  // namespace qft::pack
