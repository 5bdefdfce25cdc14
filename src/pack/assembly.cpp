#include "assembly.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/thread.h"

#include <algorithm>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

#include "layout.h"

namespace qft::pack {

using nlohmann::json;

namespace {

/// Converts a part's local offsets and category indices to the pack's.
void globalise_offsets(PackPart& part, const Sizes& first, const std::unordered_map<std::string, std::int32_t>& categories) {
  PackPart::for_each_array(part, [&](PackArray array, auto& values) {
    const PackArrayInfo& info = info_of(array);
    if (!info.offsets_into) return;
    const auto base = first[index_of(*info.offsets_into)] / static_cast<std::int64_t>(info_of(*info.offsets_into).columns);
    for (auto& value : values) value += static_cast<std::remove_reference_t<decltype(value)>>(base);
  });
  std::vector<std::int32_t> numbers;
  for (const std::string& name : part.summary.category_names) numbers.push_back(categories.at(name));
  for (std::int32_t& category : part.category) category = numbers.at(static_cast<std::size_t>(category));
}

}  // namespace

void complete_attributes(PackAttributes& attributes, const std::vector<PartSummary>& parts) {
  std::unordered_set<std::string> seen;
  attributes.max_item_sequences = 0;
  attributes.max_item_tokens = 0;
  attributes.category_names.clear();
  for (PackSource& source : attributes.sources) source.records = source.items = source.dropped = source.truncated = 0;
  std::int64_t records = 0;
  std::vector<encode::Drops> drops(attributes.sources.size());
  for (const PartSummary& part : parts) {
    for (std::size_t s = 0; s < attributes.sources.size(); ++s) {
      drops[s] += part.drops.at(s);
      PackSource& sum = attributes.sources[s];
      sum.records += part.sources.at(s).records;
      sum.items += part.sources[s].items;
      sum.dropped += part.sources[s].dropped;
      sum.truncated += part.sources[s].truncated;
      records += part.sources[s].records;
    }
    for (const std::string& name : part.category_names)
      if (seen.insert(name).second) attributes.category_names.push_back(name);
    attributes.max_item_tokens = std::max(attributes.max_item_tokens, part.max_item_tokens);
    if (part.sequences_per_item == 0) continue;
    require(attributes.varying_sequences || attributes.max_item_sequences == 0 ||
                attributes.max_item_sequences == part.sequences_per_item,
            "items with {} and with {} sequences cannot share a pack: pack single samples and preference pairs separately",
            attributes.max_item_sequences, part.sequences_per_item);
    attributes.max_item_sequences = std::max(attributes.max_item_sequences, part.sequences_per_item);
  }
  for (std::size_t s = 0; s < drops.size(); ++s)
    encode::require_usable(attributes.sources[s].name, attributes.sources[s].records, drops[s]);
  require(attributes.max_item_sequences > 0,
          "no item is left of {} records: check the datasets' columns, the template and cutoff_len", records);
  attributes.sequences_per_item = attributes.varying_sequences ? 0 : attributes.max_item_sequences;
}

namespace {

/// Gives weights to all parts if one part has weights.
std::vector<PartSummary> with_weights(std::vector<PartSummary> parts) {
  const auto weights = [](PartSummary& part) -> std::int64_t& { return part.elements[index_of(PackArray::label_span_weights)]; };
  if (std::ranges::none_of(parts, [&](PartSummary& part) { return weights(part) > 0; })) return parts;
  for (PartSummary& part : parts)
    weights(part) =
        part.elements[index_of(PackArray::label_spans)] / static_cast<std::int64_t>(info_of(PackArray::label_spans).columns);
  return parts;
}

}  // namespace

void assemble_pack(comm::Communicator& comm, const std::filesystem::path& path, const PackAttributes& attributes,
                   const std::vector<PartSummary>& chunks, int workers, const std::function<PackPart(std::size_t)>& load) {
  const std::vector<PartSummary> parts = with_weights(chunks);
  const std::vector<Sizes> first = first_elements(parts);
  std::unordered_map<std::string, std::int32_t> categories;
  for (const std::string& name : attributes.category_names)
    categories.emplace(name, static_cast<std::int32_t>(categories.size()));

  const std::string layout = comm::on_root(comm, [&] { return json(lay_out(path, attributes, first.back())).dump(); });
  const auto offsets = json::parse(layout).get<Offsets>();
  const Ownership ownership(offsets, first, comm.size() * workers);
  comm::agreed(comm, [&] {
    OutputFile file(path, 0);
    run_workers(workers, [&](int worker) {
      const int owner = comm.rank() * workers + worker;
      const auto write = [&](ByteRange byte_range, const void* data) {
        for (const ByteRange& piece : ownership.pieces(owner, byte_range))
          file.write(piece.begin, static_cast<const char*>(data) + (piece.begin - byte_range.begin), piece.end - piece.begin);
      };
      const std::int64_t zero = 0;
      for (std::size_t a = 0; a < kPackArrays; ++a)
        if (kPackArrayInfo[a].offsets_into) write({offsets[a], offsets[a] + sizeof zero}, &zero);
      for (std::size_t c = 0; c < parts.size(); ++c) {
        const auto mine = [&](const PackArrayInfo& info) {
          const auto array = static_cast<PackArray>(&info - kPackArrayInfo.data());
          return !ownership.pieces(owner, byte_range_of(array, offsets, first[c], parts[c])).empty();
        };
        if (std::none_of(kPackArrayInfo.begin(), kPackArrayInfo.end(), mine)) continue;
        PackPart part = load(c);
        globalise_offsets(part, first[c], categories);
        part.label_span_weights.resize(static_cast<std::size_t>(parts[c].elements[index_of(PackArray::label_span_weights)]),
                                       1.0F);
        PackPart::for_each_array(part, [&](PackArray array, auto& values) {
          write(byte_range_of(array, offsets, first[c], parts[c]), values.data());
        });
      }
    });
    file.finish();
  });
}

}  // namespace qft::pack
