// A run's datasets as numbered chunks of records that any rank encodes on its own.
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

/// What happened to the records of one dataset in one chunk.
struct RecordCounts {
  std::int64_t records = 0, truncated = 0, bytes = 0;
  DropCounts dropped{};

  std::int64_t all_dropped() const;
  RecordCounts& operator+=(const RecordCounts& other);
};

/// Immutable and thread-safe. The chunks are of about a megabyte of records of the merged, sampled datasets,
/// or of preprocessing_batch_size records where that is given. In stage pt with packing they always are, and
/// each chunk is joined and cut into blocks on its own, its rest left out, as LLaMA-Factory's map over batches does.
class Corpus {
 public:
  /// Opens and indexes the files and looks for the columns that dataset_info.json names. Not collective:
  /// every rank reads the files. Throws ConfigError or Error naming dataset, file, line or column.
  static std::shared_ptr<const Corpus> open(const config::RunConfig& config, CorpusPart part);

  std::size_t num_chunks() const;
  std::int64_t num_records() const { return order_->size(); }
  const std::vector<encode::DatasetSpec>& datasets() const { return specs_; }
  const encode::ChatTemplate& chat_template() const { return encoder_->chat_template(); }
  /// Whether tokens of its items are learned, rather than something that is said of each as a whole.
  bool learns_tokens() const { return encoder_->options().kind != encode::SampleKind::labelled; }

  /// Hands the chunk's items to the sink in order; the result counts by dataset. Throws Error "file:line:
  /// ..." for a broken record unless on_error is skip, and where more than on_error_limit were skipped.
  std::vector<RecordCounts> encode_chunk(std::size_t chunk, encode::ItemSink& sink) const;

  /// on_error_limit: how many may be skipped on all ranks together.
  std::size_t max_skipped() const { return max_skipped_; }

  /// The contract for a pack of this corpus.
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
  std::map<std::string, std::unique_ptr<const encode::Encoder>> others_;  // by the templates that datasets name
  std::string stage_;
  std::int64_t chunk_records_ = 1000;
  std::int64_t block_tokens_ = 0;  // > 0: documents are joined and cut into blocks
  bool skip_broken_ = false;
  nlohmann::json options_, template_options_;
  std::size_t max_skipped_ = 0;
  mutable std::atomic<std::size_t> skipped_ = 0;  // records, so far
};

/// The tokens of a block in stage pt: cutoff_len, or one less where the run file sets packing explicitly (a rule
/// of LLaMA-Factory's that goldens show).
std::int64_t document_block_tokens(const config::RunConfig& config);

/// True where stage pt joins its documents.
bool joins_documents(const config::RunConfig& config);

}  // namespace qft::pack
