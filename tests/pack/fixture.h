// Synthetic items and packs for tests: every item is a function of its number.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/pack/builder.h"
#include "qft/pack/reader.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "io/temp_dir.h"

namespace qft::test {

inline constexpr std::int32_t kVocab = 5000;

/// Returns lengths like Alpaca's with a Qwen tokenizer: log-normal, median 100.
inline std::vector<std::int32_t> alpaca_like_lengths(std::size_t count, std::int32_t most, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> length(4.6, 0.6);
  std::vector<std::int32_t> lengths(count);
  for (auto& l : lengths) l = std::clamp(static_cast<std::int32_t>(length(random)), 5, most);
  return lengths;
}

/// Sets a weight for each span; every third is 1.
inline encode::EncodedItem with_weights(encode::EncodedItem item) {
  for (encode::EncodedSequence& sequence : item.sequences)
    for (const encode::Span& span : sequence.label_spans)
      sequence.span_weights.push_back(0.5F * static_cast<float>(1 + (span.end + 1) % 3));
  return item;
}

/// Returns item `number`: 3 to 42 tokens per sequence, one or two spans (sometimes from position 0), three categories.
inline encode::EncodedItem make_item(std::int64_t number, int sequences = 1) {
  std::mt19937_64 random(static_cast<std::uint64_t>(number) + 17);
  encode::EncodedItem item;
  for (int s = 0; s < sequences; ++s) {
    encode::EncodedSequence& sequence = item.sequences.emplace_back();
    const auto length = static_cast<std::int32_t>(3 + random() % 40);
    for (std::int32_t t = 0; t < length; ++t) sequence.ids.push_back(static_cast<std::int32_t>(random() % kVocab));
    const auto begin = static_cast<std::int32_t>(random() % 2);
    if (length > 8 && random() % 2 == 0) sequence.label_spans.push_back({begin, begin + 2});
    sequence.label_spans.push_back({length - 2, length});
  }
  const char* const names[] = {"easy", "hard", "中"};
  item.category = names[number % 3];
  if (number % 4 == 0) item.tags = {{"source", "set " + std::to_string(number)}, {"b", "\"quoted\"\n"}};
  item.dataset = number % 5 == 0 ? 1 : 0;
  item.source_index = number * 10;
  return item;
}

/// Returns item `number` of a pack with varying numbers of sequences: 1 to 9, without labels, about a third of them positives.
inline encode::EncodedItem make_list(std::int64_t number) {
  const auto sequences = static_cast<int>(1 + number * 5 % 9);
  encode::EncodedItem item = make_item(number, sequences);
  for (encode::EncodedSequence& sequence : item.sequences) sequence.label_spans.clear();
  item.tags.emplace_back(encode::kPositivesTag, std::to_string(sequences / 3));
  return item;
}

inline pack::PackAttributes make_attributes() {
  pack::PackAttributes a;
  a.tokenizer_hash = "tok";
  a.template_hash = "tpl";
  a.template_name = "qwen";
  a.stage = "sft";
  a.vocab_size = kVocab;
  a.cutoff_len = 2048;
  a.options = {{"train_on_prompt", false}, {"mask_history", true}};
  a.sources.resize(2);
  a.sources[0] = {"first", "h0"};
  a.sources[1] = {"second", "h1"};
  a.sources[0].files = {{"first.json", 12345}};
  return a;
}

/// Returns the error of `action` while no file may grow beyond `bytes`: a process sees a full disk in the same way.
inline std::string error_with_file_limit(rlim_t bytes, const std::function<void()>& action) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{bytes, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond the limit fails with an error
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const std::string error = error_of(action);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  return error;
}

/// encode_chunk for items [0, count) in equal chunks.
struct Encoder {
  std::int64_t count = 0;
  int sequences = 1;
  std::int64_t chunk_items = 7;
  bool lists = false;  ///< of make_list()
  std::size_t chunks() const { return static_cast<std::size_t>((count + chunk_items - 1) / chunk_items); }
  void operator()(std::size_t chunk, pack::PackSink& sink) const {
    const std::int64_t begin = static_cast<std::int64_t>(chunk) * chunk_items, end = std::min(begin + chunk_items, count);
    for (std::int64_t i = begin; i < end; ++i) {
      auto item = lists ? make_list(i) : make_item(i, sequences);
      sink.count(item.dataset, 1, 0, i % 6 == 0);
      sink.add(std::move(item));
    }
    sink.count(0, 2, 2, 0);
    sink.count_bytes(100 * (end - begin));
  }
};

inline std::shared_ptr<const pack::PackReader> build_pack(const std::filesystem::path& path, std::int64_t count,
                                                          int sequences = 1, std::int64_t chunk_items = 7) {
  const auto comm = comm::make_self_communicator();
  const Encoder encoder{count, sequences, chunk_items};
  pack::PackBuilder(*comm, path, make_attributes()).build(encoder.chunks(), encoder);
  return pack::PackReader::open(path);
}

/// Builds a pack of items with varying numbers of sequences, in one chunk.
inline std::shared_ptr<const pack::PackReader> build_varying(const std::filesystem::path& path,
                                                             const std::vector<encode::EncodedItem>& items) {
  const auto comm = comm::make_self_communicator();
  pack::PackAttributes attributes = make_attributes();
  attributes.varying_sequences = true;
  pack::PackBuilder(*comm, path, attributes).build(1, [&](std::size_t, pack::PackSink& sink) {
    for (const encode::EncodedItem& item : items) {
      sink.count(item.dataset, 1, 0, 0);
      sink.add(encode::EncodedItem(item));
    }
  });
  return pack::PackReader::open(path);
}

/// Returns item `number` with a sequence per document, without labels, the first `positives` of them relevant.
inline encode::EncodedItem make_documents(std::int64_t number, int documents, int positives) {
  encode::EncodedItem item = make_item(number, documents);
  for (encode::EncodedSequence& sequence : item.sequences) sequence.label_spans.clear();
  item.tags.assign(1, {std::string(encode::kPositivesTag), std::to_string(positives)});
  return item;
}

/// Builds a pack of make_list()'s items.
inline std::shared_ptr<const pack::PackReader> build_lists(const std::filesystem::path& path, std::int64_t count) {
  const auto comm = comm::make_self_communicator();
  const Encoder encoder{.count = count, .lists = true};
  pack::PackAttributes attributes = make_attributes();
  attributes.varying_sequences = true;
  pack::PackBuilder(*comm, path, attributes).build(encoder.chunks(), encoder);
  return pack::PackReader::open(path);
}

}  // namespace qft::test
