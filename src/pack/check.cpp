// Checks that a pack was made for this run and is intact.
#include "qft/core/error.h"
#include "qft/encode/template_spec.h"
#include "qft/io/hdf5.h"
#include "qft/pack/reader.h"

#include <cmath>

#include "arrays.h"
#include "layout.h"

namespace qft::pack {

void PackReader::check_against(const PackExpectation& expected) const {
  const std::string pack = path().string();
  if (attributes_.tokenizer_hash != expected.tokenizer_hash)
    fail_config(
        "pack '{}' was made with another tokenizer (hash {}) than the model's ({}): repack with qft-pack and "
        "this model's tokenizer, or name the model that the pack was made for",
        pack, attributes_.tokenizer_hash, expected.tokenizer_hash);
  if (attributes_.template_hash != expected.template_hash)
    fail_config(
        "pack '{}' was made with template '{}' (hash {}), the run's template has hash {}: set the same template, "
        "or repack with qft-pack",
        pack, attributes_.template_name, attributes_.template_hash, expected.template_hash);
  if (attributes_.vocab_size > expected.vocab_size)
    fail_config(
        "pack '{}' was made with {} token ids, the model has {}: use the model that the pack was made for, or "
        "repack with qft-pack",
        pack, attributes_.vocab_size, expected.vocab_size);
  if (attributes_.cutoff_len != expected.cutoff_len)
    fail_config("cutoff_len {} differs from {} in pack '{}': set cutoff_len to {}, or repack with qft-pack", expected.cutoff_len,
                attributes_.cutoff_len, pack, attributes_.cutoff_len);
}

/// Checks the attributes against the number of items of each source, and against each other.
void PackReader::verify_counts(const std::vector<std::int64_t>& items_found) const {
  std::int64_t dropped = 0, truncated = 0;
  for (std::size_t s = 0; s < items_found.size(); ++s) {
    const PackSource& source = attributes_.sources[s];
    require(items_found[s] == source.items, "'{}': {} items of '{}', but its attributes say {}", path().string(), items_found[s],
            source.name, source.items);
    // The model's own template may make several samples from a conversation.
    const bool several = attributes_.template_name == encode::kOwnTemplate && source.items > source.records - source.dropped;
    const config::Stage* stage = config::find_stage(attributes_.stage);  // null: of a newer version
    require(stage == nullptr || stage->has_documents() || several || source.records == source.items + source.dropped,
            "'{}': '{}' has {} records, {} items and {} dropped: these do not add up", path().string(), source.name,
            source.records, source.items, source.dropped);
    dropped += source.dropped;
    truncated += source.truncated;
  }
  const io::h5::File file = io::h5::File::open(path());
  for (const auto& [name, sum] : {std::pair("dropped", dropped), std::pair("truncated", truncated)})
    require(file.get_int(name) == sum, "'{}': attribute '{}' is {}, but the sources add up to {}", path().string(), name,
            file.get_int(name), sum);
}

void PackReader::verify(const std::function<void(std::int64_t)>& progress) const {
  const auto tokens = item_tokens(), labels = item_labels();
  std::vector<std::int64_t> per_source(attributes_.sources.size());
  std::int64_t longest = 0, most = 0;
  for (std::int64_t i = 0; i < num_items(); ++i) {
    const encode::EncodedItem encoded = item(i);
    std::int64_t num_tokens = 0, num_labels = 0;
    for (const encode::EncodedSequence& sequence : encoded.sequences) {
      require(!sequence.ids.empty(), "{}: an empty sequence", where(i));
      const auto length = static_cast<std::int32_t>(sequence.ids.size());
      for (const std::int32_t id : sequence.ids)
        require(id >= 0 && id < attributes_.vocab_size, "{}: token id {} outside the vocabulary of {}", where(i), id,
                attributes_.vocab_size);
      std::int32_t last = 0;
      for (const encode::Span& span : sequence.label_spans) {
        require(span.begin >= last && span.begin < span.end && span.end <= length,
                "{}: label span [{}, {}) after {} in a sequence of {} tokens", where(i), span.begin, span.end, last, length);
        last = span.end;
      }
      for (const float weight : sequence.span_weights)
        require(weight > 0 && std::isfinite(weight), "{}: label weight {}", where(i), weight);
      num_tokens += length;
      num_labels += sequence.num_labels();
    }
    const auto at = static_cast<std::size_t>(i);
    require(tokens[at] == num_tokens && labels[at] == num_labels,
            "{}: it has {} tokens and {} labels, its length table says {} and {}", where(i), num_tokens, num_labels, tokens[at],
            labels[at]);
    require(encoded.dataset >= 0 && static_cast<std::size_t>(encoded.dataset) < per_source.size(), "{}: dataset {} of {}",
            where(i), encoded.dataset, per_source.size());
    ++per_source[static_cast<std::size_t>(encoded.dataset)];
    longest = std::max(longest, num_tokens);
    most = std::max(most, static_cast<std::int64_t>(encoded.sequences.size()));
    if (attributes_.varying_sequences)
      encode::positives_of(attributes_.stage_row().sample, std::ssize(encoded.sequences), encoded.tags);
    if (progress) progress(i + 1);
  }
  verify_counts(per_source);
  require(longest == attributes_.max_item_tokens, "'{}': the longest item has {} tokens, max_item_tokens says {}",
          path().string(), longest, attributes_.max_item_tokens);
  require(most == attributes_.max_item_sequences, "'{}': an item has up to {} sequences, max_item_sequences says {}",
          path().string(), most, attributes_.max_item_sequences);
  verify_frame();
}

void PackReader::verify_frame() const {
  const io::h5::File file = io::h5::File::open(path());
  require(file.contains(kFrameCrc), "'{}' lacks the dataset '{}': it is not a complete pack, repack", path().string(), kFrameCrc);
  const io::h5::Dataset crc = file.dataset(kFrameCrc);
  std::vector<ByteRange> datasets = {{crc.offset(), crc.offset() + crc.bytes()}};
  for (std::size_t i = 0; i < kPackArrays; ++i)
    if (has_array(i, weighted_))
      datasets.push_back(
          {extents_[i].offset, extents_[i].offset + extents_[i].elements * io::h5::size_of(kPackArrayInfo[i].type)});
  require(crc.type() == io::h5::Type::u32 && crc.elements() == 1, "'{}': dataset '{}' is not one u32: the file is damaged",
          path().string(), kFrameCrc);
  const std::uint32_t stored = crc.read_all<std::uint32_t>()[0], found = frame_crc(file_, datasets);
  require(stored == found,
          "'{}': CRC32C outside its datasets: {:08x} stored, {:08x} found: the file is damaged, copy or pack it again",
          path().string(), stored, found);
}

}  // namespace qft::pack
