#include "qft/pack/merge.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/pack/reader.h"

#include <algorithm>
#include <memory>

namespace qft::pack {

using nlohmann::json;

namespace {

using Packs = std::vector<std::shared_ptr<const PackReader>>;

constexpr std::int64_t kChunkTokens = 1 << 22;

/// Options that select records and do not change a record's items.
constexpr std::string_view kSelection[] = {"datasets", "mix_strategy", "interleave_probs", "max_samples", "seed",
                                           "on_error", "merged"};

json shaping_options(const PackAttributes& attributes) {
  json options = attributes.options;
  for (const std::string_view key : kSelection) options.erase(std::string(key));
  return options;
}

/// Returns everything that the packs must have in common, by name.
json contract_of(const PackAttributes& a) {
  json contract = shaping_options(a);
  contract["tokenizer (hash)"] = a.tokenizer_hash;
  contract["template"] = a.template_name;
  contract["template (hash)"] = a.template_hash;
  contract["stage"] = a.stage;
  contract["vocabulary"] = a.vocab_size;
  contract["cutoff_len"] = a.cutoff_len;
  return contract;
}

void require_same_contract(const PackReader& first, const PackReader& other) {
  const json left = contract_of(first.attributes()), right = contract_of(other.attributes());
  json keys = left;
  keys.update(right);
  for (const auto& [key, unused] : keys.items()) {
    const json mine = left.value(key, json()), theirs = right.value(key, json());
    if (mine != theirs)
      fail_config("cannot merge: {} is {} in '{}' and {} in '{}': use one value for both packs", key, mine.dump(),
                  first.path().string(), theirs.dump(), other.path().string());
  }
}

PackAttributes merged_attributes(const Packs& packs) {
  PackAttributes merged = packs.front()->attributes();
  merged.options = shaping_options(merged);
  merged.sources.clear();
  for (const auto& pack : packs) {
    const PackAttributes& a = pack->attributes();
    merged.options["merged"].push_back(pack->fingerprint());
    for (const json& dataset : a.options.value("datasets", json::array())) merged.options["datasets"].push_back(dataset);
    merged.sources.insert(merged.sources.end(), a.sources.begin(), a.sources.end());
  }
  return merged;
}

/// Items [first, last) of a pack. The pack's dataset 0 is dataset `first_dataset` of the merged pack.
struct Chunk {
  const PackReader* pack;
  std::int64_t first, last;
  std::int32_t first_dataset;
};

std::vector<Chunk> make_chunks(const Packs& packs) {
  std::vector<Chunk> chunks;
  std::int32_t dataset = 0;
  for (const auto& pack : packs) {
    std::int64_t first = 0, tokens = 0;
    for (std::int64_t i = 0; i < pack->num_items(); ++i) {
      tokens += pack->item_tokens()[static_cast<std::size_t>(i)];
      if (tokens < kChunkTokens && i + 1 < pack->num_items()) continue;
      chunks.push_back({pack.get(), first, i + 1, dataset});
      first = i + 1;
      tokens = 0;
    }
    dataset += static_cast<std::int32_t>(pack->attributes().sources.size());
  }
  return chunks;
}

void copy_chunk(const Chunk& chunk, PackSink& sink) {
  if (chunk.first == 0) {
    std::int32_t dataset = chunk.first_dataset;
    for (const PackSource& source : chunk.pack->attributes().sources)
      sink.count(dataset++, source.records, source.dropped, source.truncated);
  }
  for (std::int64_t i = chunk.first; i < chunk.last; ++i) {
    encode::EncodedItem item = chunk.pack->item(i);
    item.dataset += chunk.first_dataset;
    sink.add(std::move(item));
  }
}

}  // namespace

PackReport merge_packs(comm::Communicator& comm, const std::vector<std::filesystem::path>& inputs,
                       const std::filesystem::path& path) {
  if (inputs.size() < 2) fail_config("merging takes two packs or more, got {}", inputs.size());
  Packs packs;
  comm::agreed(comm, [&] {
    for (const std::filesystem::path& input : inputs) {
      packs.push_back(PackReader::open(input));
      std::error_code ignored;
      if (std::filesystem::equivalent(input, path, ignored))
        fail_config("'{}' is read and written: give the merged pack another name", path.string());
      require_same_contract(*packs.front(), *packs.back());
    }
  });
  PackReport report;
  PackBuilder builder(comm, path, merged_attributes(packs));
  if (const auto current = builder.find_current()) {
    report = {true, *current};
    if (comm.rank() == 0) log::info("{} is up to date: nothing to do", path.string());
    return report;
  }
  const std::vector<Chunk> chunks = make_chunks(packs);
  report.summary = builder.build(chunks.size(), [&](std::size_t chunk, PackSink& sink) { copy_chunk(chunks[chunk], sink); });
  return report;
}

}  // namespace qft::pack
