// The encoder's output and the pack's content: items of token sequences with label spans.
#pragma once

#include "qft/config/stages.h"
#include "qft/encode/drop_reason.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qft::encode {

/// Positions [begin, end) in `ids` that are labels. Position p is predicted from hidden state p - 1, so a label at position 0
/// is never predicted.
struct Span {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

/// Tokens of one causal sequence. Spans are ascending, disjoint, not empty and inside [0, ids.size()). Adjacent spans with
/// equal weights are merged.
struct EncodedSequence {
  std::vector<std::int32_t> ids;
  std::vector<Span> label_spans;
  std::vector<float> span_weights = {};  // [label_spans] weight of each label in a span, above 0; empty: 1

  /// Appends labels after the existing ones; does nothing if `weight` is 0.
  void learn(std::int32_t begin, std::int32_t end, float weight = 1.0F);

  /// Number of labels that can be predicted: the labels at positions >= 1.
  std::int64_t num_labels() const {
    std::int64_t n = 0;
    for (const Span& s : label_spans) n += s.end - (s.begin > 0 ? s.begin : 1);
    return n;
  }
};

/// One training sample: a single sequence, a preference pair (chosen, rejected), or a list of texts (see kPositivesTag).
struct EncodedItem {
  std::vector<EncodedSequence> sequences;
  std::string category;                                   // the record's category, else the dataset's name
  std::vector<std::pair<std::string, std::string>> tags;  // further columns copied to the pack, in column order
  std::int32_t dataset = 0;                               // index into the run's list of datasets
  std::int64_t source_index = 0;                          // record number within that dataset, from 0
};

struct RecordText;

/// The tag of items in stage kto, "true" or "false": whether the answer is desirable. Their sequences are the answer and, to
/// estimate the KL divergence, the answer to another question after the same prompt.
inline constexpr std::string_view kFeedbackTag = "kto_tag";
/// Reads it from an item's tags. Throws Error if the tag is missing.
bool is_desirable(const std::vector<std::pair<std::string, std::string>>& tags);

/// The tag of items with varying numbers of sequences: how many are positives. Items of kind texts: the anchor, the positives,
/// the negatives. Items of kind ranking: a query with each positive document, then with each negative one.
inline constexpr std::string_view kPositivesTag = "positives";
/// Reads it from the tags of an item of `sequences` sequences. Throws Error if the tag is missing, or is not a number that the
/// item can have.
std::int64_t positives_of(config::SampleKind kind, std::int64_t sequences,
                          const std::vector<std::pair<std::string, std::string>>& tags);

/// The tag of items in stage seq_cls and of pairs of texts: the classifier's target, as text for parse_targets().
inline constexpr std::string_view kLabelTag = "label";
/// Parses a record's label: a number, a list of numbers, or either as text (in csv files); true is 1, false 0. Throws Error
/// with `name` and the label, without the record's place, for anything else.
std::vector<double> parse_targets(const std::string& label, std::string_view name = "a label");
/// Parses the label in an item's tags; nothing if there is none.
std::optional<std::vector<double>> targets_from_tags(const std::vector<std::pair<std::string, std::string>>& tags);

/// Takes items in source order, one chunk at a time.
class ItemSink {
 public:
  virtual ~ItemSink() = default;
  virtual void add(EncodedItem&& item) = 0;
  /// Called with each record before it is converted; ignored by default.
  virtual void begin_record(const RecordText&) {}
  /// Called for a record of `dataset` that yields no item; `what`: "file:line: detail".
  virtual void drop(std::int32_t /*dataset*/, DropReason, const std::string& /*what*/) {}
};

}  // namespace qft::encode
