// What the encoder makes and the pack file holds: items of token sequences with label spans.
#pragma once

#include "qft/encode/drop_reason.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qft::encode {

/// Positions [begin, end) in `ids` whose token is a label: position p is predicted from hidden state p - 1.
/// A label at position 0 of a sequence is never predicted.
struct Span {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

/// Tokens of one causal sequence. The spans are ascending, disjoint, not empty, inside [0, ids.size()), and
/// adjacent spans are merged where their labels count alike.
struct EncodedSequence {
  std::vector<std::int32_t> ids;
  std::vector<Span> label_spans;
  std::vector<float> span_weights = {};  // [label_spans] what each label of a span counts, above 0; empty: 1

  /// Adds labels behind those that there are; none where `weight` is 0.
  void learn(std::int32_t begin, std::int32_t end, float weight = 1.0F);

  /// Labels that can be predicted: those at positions >= 1.
  std::int64_t num_labels() const {
    std::int64_t n = 0;
    for (const Span& s : label_spans) n += s.end - (s.begin > 0 ? s.begin : 1);
    return n;
  }
};

/// One training sample: a single sequence, or a preference pair (chosen, rejected).
struct EncodedItem {
  std::vector<EncodedSequence> sequences;
  std::string category;                                   // the record's category, else the dataset's name
  std::vector<std::pair<std::string, std::string>> tags;  // further columns carried along, in column order
  std::int32_t dataset = 0;                               // index into the run's list of datasets
  std::int64_t source_index = 0;                          // record number within that dataset, from 0
};

struct RecordText;

/// The tag of items of stage kto, "true" or "false": whether the answer is liked. Their sequences are the
/// answer and, for the estimate of the KL divergence, the answer to another question after the same prompt.
inline constexpr std::string_view kFeedbackTag = "kto_tag";
/// By an item's tags; throws Error where there is no such one.
bool is_liked(const std::vector<std::pair<std::string, std::string>>& tags);

/// The tag of items of stage seq_cls: what a classifier is to say of the text, as class_values() reads it.
inline constexpr std::string_view kLabelTag = "label";
/// The numbers of a label as records have it: a number, a list of numbers, or either as a text (of csv files); true is 1, false
/// 0. Throws Error, without the place, for what is none.
std::vector<double> class_values(const std::string& label);
/// By an item's tags; nothing where there is no such one.
std::optional<std::vector<double>> classes_of(const std::vector<std::pair<std::string, std::string>>& tags);

/// Takes items in source order, one chunk at a time.
class ItemSink {
 public:
  virtual ~ItemSink() = default;
  virtual void add(EncodedItem&& item) = 0;
  /// For those who want to know: each record before it is converted.
  virtual void begin(const RecordText&) {}
  /// A record of `dataset` that makes no item; `what`: "file:line: what is wrong".
  virtual void leave_out(std::int32_t /*dataset*/, DropReason, const std::string& /*what*/) {}
};

}  // namespace qft::encode
