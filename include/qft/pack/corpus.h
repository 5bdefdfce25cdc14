// Divides a run's datasets into numbered chunks of records, which any rank can encode independently.
#pragma once

#include "qft/config/run_config.h"
#include "qft/encode/dataset_info.h"
#include "qft/encode/drop_reason.h"
#include "qft/encode/encoder.h"
#include "qft/encode/item.h"
#include "qft/encode/record_order.h"
#include "qft/encode/record_source.h"
#include "qft/pack/format.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace qft::pack {

enum class CorpusPart { train, eval };  // the keys dataset and eval_dataset

using DropCounts = std::array<std::int64_t, encode::kDropReasons>;

/// The fate of one dataset's records in one chunk.
struct RecordCounts {
  std::int64_t records = 0, truncated = 0, bytes = 0;
  std::int64_t empty_negatives = 0;  ///< empty texts that were left out of items
  DropCounts dropped{};

  std::int64_t all_dropped() const;
  RecordCounts& operator+=(const RecordCounts& other);
};

/// Immutable and thread-safe. A chunk is about a megabyte of records of the merged, sampled datasets, or
/// preprocessing_batch_size records if that is given. Stage pt with packing always uses preprocessing_batch_size records; each
/// chunk is then joined and cut into blocks separately and the remainder is dropped, as in LLaMA-Factory's map over batches.
class Corpus {
 public:
  /// Opens and indexes the files and checks for the columns that dataset_info.json names. Not collective: every rank reads the
  /// files. Throws ConfigError or Error with dataset, file, line or column.
  static std::shared_ptr<const Corpus> open(const config::RunConfig& config, CorpusPart part);

  std::size_t num_chunks() const;
  std::int64_t num_records() const { return order_->size(); }
  const std::vector<encode::DatasetSpec>& datasets() const { return specs_; }
  const encode::ChatTemplate& chat_template() const { return encoder_->chat_template(); }
  /// True if tokens of its items are learned; false if the label applies to the whole sequence.
  bool learns_tokens() const { return stage_->token_labels; }

  /// Passes the chunk's items to the sink in order; returns counts by dataset. Throws Error "file:line: ..." for a broken record
  /// unless on_error is skip, and ConfigError if more than on_error_limit records were skipped.
  std::vector<RecordCounts> encode_chunk(std::size_t chunk, encode::ItemSink& sink) const;

  /// on_error_limit: the number of records that all ranks together may skip.
  std::size_t max_skipped() const { return max_skipped_; }

  /// Returns the attributes of a pack of this corpus.
  PackAttributes attributes() const;

 private:
  class ChunkReader;
  Corpus() = default;
  void open_sources(const config::RunConfig& config);
  void make_encoders(const config::RunConfig& config, const encode::EncoderOptions& options);
  const encode::Encoder& encoder_of(std::int32_t dataset) const;
  std::int64_t default_chunk_records() const;
  void note_skipped(const std::string& what) const;
  void record_options(const config::RunConfig& config);

  std::vector<encode::DatasetSpec> specs_;
  std::vector<std::shared_ptr<const encode::RecordSource>> sources_;
  std::unique_ptr<const encode::RecordOrder> order_;
  std::unique_ptr<const encode::Encoder> encoder_;                        // with the run's template
  std::map<std::string, std::unique_ptr<const encode::Encoder>> others_;  // for datasets with their own template, by its name
  const config::Stage* stage_ = nullptr;
  std::int64_t chunk_records_ = 1000;
  std::int64_t block_tokens_ = 0;  // > 0: documents are joined and cut into blocks
  bool skip_broken_ = false;
  nlohmann::json options_, template_options_;
  std::size_t max_skipped_ = 0;
  mutable std::atomic<std::size_t> skipped_ = 0;  // records so far
};

/// Returns the tokens of a block in stage pt: cutoff_len, or one less if the run file sets packing explicitly (a rule of
/// LLaMA-Factory, confirmed by goldens).
std::int64_t document_block_tokens(const config::RunConfig& config);

/// True if stage pt joins its documents.
bool joins_documents(const config::RunConfig& config);

}  // namespace qft::pack
