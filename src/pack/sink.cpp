#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/pack/builder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "part.h"

namespace qft::pack {

void PackSink::check_sequence(const encode::EncodedSequence& sequence) const {
  require(!sequence.ids.empty(),
          "an item with an empty sequence: write a text, remove the record, or set a template that adds tokens");
  for (const std::int32_t id : sequence.ids)
    require(id >= 0 && id < attributes_.vocab_size, "token id {} outside the vocabulary of {}", id, attributes_.vocab_size);
  std::int32_t last = 0;
  for (const encode::Span& span : sequence.label_spans) {
    require(span.begin >= last && span.begin < span.end && span.end <= static_cast<std::int32_t>(sequence.ids.size()),
            "label span [{}, {}) after {} in a sequence of {} tokens", span.begin, span.end, last, sequence.ids.size());
    last = span.end;
  }
  const auto& weights = sequence.span_weights;
  require(weights.empty() || !attributes_.varying_sequences, "label weights in an item of stage {}", attributes_.stage);
  require(weights.empty() || weights.size() == sequence.label_spans.size(), "{} weights for {} label spans", weights.size(),
          sequence.label_spans.size());
  for (const float weight : weights)
    require(weight > 0 && std::isfinite(weight), "label weight {}: the weights of messages and records multiply", weight);
}

void PackSink::check_dataset(std::int32_t dataset) const {
  require(dataset >= 0 && static_cast<std::size_t>(dataset) < attributes_.sources.size(), "dataset {} of {}", dataset,
          attributes_.sources.size());
}

void PackSink::add(encode::EncodedItem&& item) try {
  check_dataset(item.dataset);
  PartSummary& summary = part_.summary;
  const auto sequences = static_cast<std::int64_t>(item.sequences.size());
  require(sequences >= 1, "an item without sequences");
  require(attributes_.varying_sequences || summary.sequences_per_item == 0 || summary.sequences_per_item == sequences,
          "an item of {} sequences among items of {}", sequences, summary.sequences_per_item);

  std::size_t size = 0;
  for (const encode::EncodedSequence& sequence : item.sequences) {
    check_sequence(sequence);
    size += sequence.ids.size();
  }
  require(size <= std::numeric_limits<std::int32_t>::max(), "an item of {} tokens", size);

  const std::string tags = tags_to_json(item.tags);
  const std::int32_t category = part_.category_number(item.category);

  FlatItem flat;
  std::int64_t labels = 0;
  bool weighted = !part_.label_span_weights.empty();
  const auto base_token = static_cast<std::int64_t>(part_.tokens.size());
  const auto base_span = static_cast<std::int64_t>(part_.label_spans.size() / 2);
  for (const encode::EncodedSequence& sequence : item.sequences) {
    flat.ids.insert(flat.ids.end(), sequence.ids.begin(), sequence.ids.end());
    flat.spans.insert(flat.spans.end(), sequence.label_spans.begin(), sequence.label_spans.end());
    weighted |= !sequence.span_weights.empty();
    flat.span_weights.insert(flat.span_weights.end(), sequence.span_weights.begin(), sequence.span_weights.end());
    flat.span_weights.resize(flat.spans.size(), 1.0F);
    flat.sequence_ends.push_back(static_cast<std::int64_t>(flat.ids.size()));
    flat.span_ends.push_back(static_cast<std::int64_t>(flat.spans.size()));
    part_.sequence_offsets.push_back(base_token + flat.sequence_ends.back());
    part_.label_span_offsets.push_back(base_span + flat.span_ends.back());
    labels += sequence.num_labels();
  }
  const auto tokens = static_cast<std::int64_t>(flat.ids.size());
  part_.tokens.insert(part_.tokens.end(), flat.ids.begin(), flat.ids.end());
  for (const encode::Span& span : flat.spans) part_.label_spans.insert(part_.label_spans.end(), {span.begin, span.end});
  if (weighted) {
    part_.label_span_weights.resize(static_cast<std::size_t>(base_span), 1.0F);
    part_.label_span_weights.insert(part_.label_span_weights.end(), flat.span_weights.begin(), flat.span_weights.end());
  }
  part_.item_offsets.push_back(static_cast<std::int64_t>(part_.sequence_offsets.size()));
  part_.item_tokens.push_back(static_cast<std::int32_t>(tokens));
  part_.item_labels.push_back(static_cast<std::int32_t>(labels));
  part_.category.push_back(category);
  part_.dataset.push_back(item.dataset);
  part_.source_index.push_back(item.source_index);
  part_.tags.insert(part_.tags.end(), tags.begin(), tags.end());
  part_.tag_offsets.push_back(static_cast<std::int64_t>(part_.tags.size()));
  part_.item_crc32c.push_back(flat.crc());
  part_.item_crc32c.push_back(origin_crc(item.category, item.dataset, item.source_index, tags));

  summary.sequences_per_item = std::max(summary.sequences_per_item, sequences);
  summary.max_item_tokens = std::max(summary.max_item_tokens, tokens);
  summary.labels += labels;
  ++summary.sources[static_cast<std::size_t>(item.dataset)].items;
} catch (const Error& e) {
  fail("record {} of dataset {}: {}", item.source_index, item.dataset, e.what());
} catch (const nlohmann::json::exception&) {
  fail("record {} of dataset {}: its category or a tag is not UTF-8", item.source_index, item.dataset);
}

void PackSink::drop(std::int32_t dataset, encode::DropReason reason, const std::string& what) {
  check_dataset(dataset);
  encode::Drops& drops = part_.summary.drops[static_cast<std::size_t>(dataset)];
  const bool is_first = drops.counts[static_cast<std::size_t>(reason)] == 0, is_listed = reason == encode::DropReason::unreadable;
  // The record may contain any bytes, but a part's header is JSON.
  constexpr std::size_t kMaxReasonBytes = 1000;
  const std::string text = is_first || is_listed ? replace_invalid_utf8(what.substr(0, kMaxReasonBytes)) : std::string();
  drops.add(reason, text);
  if (is_listed) part_.summary.skipped.push_back(text);
}

void PackSink::count(std::int32_t dataset, std::int64_t records, std::int64_t dropped, std::int64_t truncated) {
  check_dataset(dataset);
  PackSource& source = part_.summary.sources[static_cast<std::size_t>(dataset)];
  source.records += records;
  source.dropped += dropped;
  source.truncated += truncated;
}

void PackSink::count_bytes(std::int64_t bytes) {
  part_.summary.source_bytes += bytes;
}

void PackSink::count_empty_negatives(std::int64_t texts) {
  part_.summary.empty_negatives += texts;
}

}  // namespace qft::pack
