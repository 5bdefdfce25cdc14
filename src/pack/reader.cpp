#include "qft/pack/reader.h"

#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/json.h"
#include "qft/io/hdf5.h"
#include "qft/pack/inputs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "arrays.h"
#include <fmt/ranges.h>

namespace qft::pack {

using nlohmann::json;

namespace {

json parse_attribute(const io::h5::File& file, const std::string& name) {
  return parse_json(file.get_string(name), fmt::format("'{}': attribute '{}'", file.path().string(), name));
}

std::vector<PackSource> parse_sources(const json& list) {
  std::vector<PackSource> sources;
  for (const json& s : list)
    sources.push_back(
        {s.at("name"), s.at("hash"), s.at("records"), s.at("items"), s.at("dropped"), s.at("truncated"), files_from_json(s)});
  return sources;
}

PackAttributes read_attributes(const io::h5::File& file) try {
  PackAttributes a;
  a.tokenizer_hash = file.get_string("tokenizer_hash");
  a.template_hash = file.get_string("template_hash");
  a.template_name = file.get_string("template");
  a.stage = file.get_string("stage");
  a.vocab_size = file.get_int("vocab_size");
  a.cutoff_len = file.get_int("cutoff_len");
  a.options = parse_attribute(file, "options");
  if (file.has_attribute("template_options")) a.template_options = parse_attribute(file, "template_options");
  a.sources = parse_sources(parse_attribute(file, "sources"));
  a.category_names = parse_attribute(file, "category_names").get<std::vector<std::string>>();
  a.sequences_per_item = file.get_int("sequences_per_item");
  a.varying_sequences = a.sequences_per_item == 0;
  a.max_item_sequences = a.varying_sequences ? file.get_int("max_item_sequences") : a.sequences_per_item;
  a.max_item_tokens = file.get_int("max_item_tokens");
  return a;
} catch (const json::exception& e) {
  fail("'{}' is not a complete pack: an attribute has an unexpected shape ({}): repack", file.path().string(), e.what());
}

// Describes a `path` that is not a pack, with the remedy; "" for a file that HDF5 may open.
std::string describe_no_pack(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  const std::string name = path.string(), type = file_ending(path);
  if (fs::is_directory(path, code)) {
    std::vector<std::string> packs;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, code))
      if (file_ending(entry.path()) == ".h5") packs.push_back(entry.path().string());
    std::sort(packs.begin(), packs.end());
    return packs.empty() ? fmt::format("'{}' is a directory and has no pack (.h5) in it", name)
                         : fmt::format("'{}' is a directory: name one of the packs in it: {}", name, fmt::join(packs, ", "));
  }
  if (!fs::is_regular_file(path, code)) return {};
  const std::string lead = io::File::open_read(path).lead();
  if (lead.starts_with("\x89HDF")) return {};
  if (std::string pointer = describe_pointer(lead, path); !pointer.empty()) return pointer;
  if (type == ".yaml" || type == ".yml")
    return fmt::format("'{}' is a run file, not a pack: make its pack with qft-pack {} --output PACK.h5, and name that", name,
                       name);
  if (type == ".json" || type == ".jsonl" || type == ".txt")
    return fmt::format(
        "'{}' is a data file, not a pack: pack it with qft-pack RUN.yaml --dataset {} --output PACK.h5, and name that; qft-pack "
        "check RUN.yaml --dataset {} looks for faults in it",
        name, name, name);
  return {};
}

}  // namespace

PackReader::PackReader(io::File file) : file_(std::move(file)), lengths_(std::make_unique<LengthTables>()) {}

std::shared_ptr<const PackReader> PackReader::open(const std::filesystem::path& path) {
  if (const std::string other = describe_no_pack(path); !other.empty()) fail_config("{}", other);
  std::shared_ptr<PackReader> pack(new PackReader(io::File::open_read(path)));
  pack->read_header();
  pack->check_shapes();
  return pack;
}

void PackReader::read_header() {
  const io::h5::File file = io::h5::File::open(path());
  if (!file.has_attribute("format") || file.get_string("format") != kPackFormatName)
    fail("'{}' is an HDF5 file but not a pack: make one with qft-pack", path().string());
  const std::int64_t version = file.get_int("format_version");
  require(version >= kPackFormatVersion && version <= kVaryingPackVersion,
          "'{}' has pack format {}, this program reads {} to {}: repack with its qft-pack", path().string(), version,
          kPackFormatVersion, kVaryingPackVersion);
  weighted_ = version == kWeightedPackVersion;
  attributes_ = read_attributes(file);
  require(attributes_.varying_sequences == (version == kVaryingPackVersion),
          "'{}': sequences_per_item is {} in pack format {}: the file is damaged, repack", path().string(),
          attributes_.sequences_per_item, version);
  fingerprint_ = file.get_string("fingerprint");
  require(fingerprint_ == attributes_.fingerprint(),
          "'{}': fingerprint {} does not follow from the other attributes ({}): they were changed after packing, repack",
          path().string(), fingerprint_, attributes_.fingerprint());
  for (std::size_t i = 0; i < kPackArrays; ++i) {
    if (!has_array(i, weighted_)) continue;
    const PackArrayInfo& info = kPackArrayInfo[i];
    require(file.contains(info.name), "'{}' lacks the dataset '{}': it is not a complete pack, repack", path().string(),
            info.name);
    const io::h5::Dataset dataset = file.dataset(info.name);
    const bool shaped =
        info.columns == 1 ? dataset.shape().size() == 1 : dataset.shape().size() == 2 && dataset.shape()[1] == info.columns;
    require(dataset.type() == info.type && shaped, "'{}': dataset '{}' is not {} with {} column(s)", path().string(), info.name,
            io::h5::name_of(info.type), info.columns);
    extents_[i] = {dataset.offset(), dataset.elements()};
  }
}

void PackReader::check_shapes() const {
  const std::uint64_t weights = extent(PackArray::label_span_weights).elements,
                      spans = extent(PackArray::label_spans).elements / 2;
  require(!weighted_ || (weights == spans && spans > 0), "'{}': {} weights for {} label spans: the file is damaged, repack",
          path().string(), weights, spans);
  for (std::size_t i = 0; i < kPackArrays; ++i) {
    const PackArrayInfo& info = kPackArrayInfo[i];
    const Extent& e = extents_[i];
    const std::uint64_t bytes = e.elements * io::h5::size_of(info.type);
    require(e.offset + bytes <= file_.size(), "'{}' is truncated: '{}' ends at byte {} of {}: copy or pack it again",
            path().string(), info.name, e.offset + bytes, file_.size());
    const std::uint64_t rows = e.elements / info.columns;
    if (info.row_per) {
      const std::uint64_t expected = extent(*info.row_per).elements - 1 + (info.offsets_into ? 1 : 0);
      require(rows == expected, "'{}': '{}' has {} rows, but '{}' needs {}", path().string(), info.name, rows,
              info_of(*info.row_per).name, expected);
    }
    if (!info.offsets_into) continue;
    require(e.elements >= 2, "'{}': '{}' is empty", path().string(), info.name);
    const PackArrayInfo& target = info_of(*info.offsets_into);
    const std::uint64_t runs = extent(*info.offsets_into).elements / target.columns - (target.offsets_into ? 1 : 0);
    std::int64_t first = 0, last = 0;
    file_.pread(e.offset, &first, sizeof first);
    file_.pread(e.offset + bytes - sizeof last, &last, sizeof last);
    require(first == 0 && last == static_cast<std::int64_t>(runs),
            "'{}': '{}' runs from {} to {}, and '{}' has {} rows: the file is damaged", path().string(), info.name, first, last,
            target.name, runs);
  }
}

std::int64_t PackReader::num_items() const {
  return static_cast<std::int64_t>(extent(PackArray::item_offsets).elements) - 1;
}
std::int64_t PackReader::num_sequences() const {
  return static_cast<std::int64_t>(extent(PackArray::sequence_offsets).elements) - 1;
}
std::int64_t PackReader::num_tokens() const {
  return static_cast<std::int64_t>(extent(PackArray::tokens).elements);
}

std::vector<float> PackReader::span_weights() const {
  std::vector<float> weights(extent(PackArray::label_span_weights).elements);
  read_range<float>(PackArray::label_span_weights, 0, weights);
  return weights;
}

std::string PackReader::where(std::int64_t index) const {
  return fmt::format("'{}', item {}", path().string(), index);
}

template <class T>
void PackReader::read_range(PackArray array, std::int64_t first, std::span<T> values) const {
  if (!values.empty())
    file_.pread(extent(array).offset + static_cast<std::uint64_t>(first) * sizeof(T), values.data(), values.size_bytes());
}

/// Reads offsets[first .. first + count] and checks that they rise and stay within their array. Items have sequences, and
/// sequences have tokens, so these offsets rise with each entry. `item`: for the message; unset: the array's row is the item.
void PackReader::read_offsets(PackArray array, std::int64_t first, std::span<std::int64_t> offsets,
                              std::optional<std::int64_t> item) const {
  read_range<std::int64_t>(array, first, offsets);
  const PackArrayInfo& target = info_of(*info_of(array).offsets_into);
  const auto end = static_cast<std::int64_t>(extent(*info_of(array).offsets_into).elements / target.columns);
  const bool strictly = array == PackArray::item_offsets || array == PackArray::sequence_offsets;
  const auto bad = std::ranges::adjacent_find(
      offsets, [&](std::int64_t a, std::int64_t b) { return a < 0 || b > end || (strictly ? b <= a : b < a); });
  if (bad == offsets.end()) return;
  const std::int64_t row = first + (bad - offsets.begin());
  fail_config("{}: its entries of '{}' are out of order ({}, then {}, of {}){}: the file is damaged, pack it again",
              item || array != PackArray::sequence_offsets ? where(item.value_or(row))
                                                           : fmt::format("'{}', sequence {}", path().string(), row),
              info_of(array).name, bad[0], bad[1], end, strictly && bad[0] == bad[1] ? ", it is empty" : "");
}

void PackReader::read(std::int64_t index, FlatItem& item) const {
  require(index >= 0 && index < num_items(), "{}: the pack has {} items", where(index), num_items());
  std::array<std::int64_t, 2> range{};
  read_offsets(PackArray::item_offsets, index, range, index);
  const auto sequences = static_cast<std::size_t>(range[1] - range[0]);
  item.first_sequence = range[0];
  require(sequences >= 1 && (attributes_.varying_sequences ? std::cmp_less_equal(sequences, attributes_.max_item_sequences)
                                                           : std::cmp_equal(sequences, attributes_.sequences_per_item)),
          "{}: it has {} sequences instead of {}{}: the file is damaged, pack it again", where(index), sequences,
          attributes_.varying_sequences ? "1 to " : "", attributes_.max_item_sequences);

  std::vector<std::int64_t> offsets(sequences + 1);
  const auto make_relative = [&](std::vector<std::int64_t>& ends) {
    ends.resize(sequences);
    for (std::size_t s = 0; s < sequences; ++s) ends[s] = offsets[s + 1] - offsets[0];
  };
  read_offsets(PackArray::sequence_offsets, range[0], offsets, index);
  make_relative(item.sequence_ends);
  require(item.sequence_ends.back() <= attributes_.max_item_tokens,
          "{}: it has {} tokens, but the pack's longest item {}: the file is damaged, pack it again", where(index),
          item.sequence_ends.back(), attributes_.max_item_tokens);
  item.ids.resize(static_cast<std::size_t>(item.sequence_ends.back()));
  read_range<std::int32_t>(PackArray::tokens, offsets[0], item.ids);

  read_offsets(PackArray::label_span_offsets, range[0], offsets, index);
  make_relative(item.span_ends);
  require(item.span_ends.back() <= static_cast<std::int64_t>(item.ids.size()),
          "{}: it has more label spans than tokens: the file is damaged, pack it again", where(index));
  item.spans.resize(static_cast<std::size_t>(item.span_ends.back()));
  read_range<encode::Span>(PackArray::label_spans, offsets[0], item.spans);
  item.span_weights.resize(weighted_ ? item.spans.size() : 0);
  read_range<float>(PackArray::label_span_weights, offsets[0], item.span_weights);

  std::uint32_t stored = 0;
  read_range<std::uint32_t>(PackArray::item_crc32c, 2 * index, {&stored, 1});
  require(stored == item.crc(), "{}: CRC32C {:08x} stored, {:08x} found: the file is damaged, copy or pack it again",
          where(index), stored, item.crc());
  for (const float weight : item.span_weights)
    require(std::isfinite(weight) && weight > 0, "{}: label weight {}, expected a number above 0: pack it again", where(index),
            weight);
}

encode::EncodedItem PackReader::item(std::int64_t index) const {
  FlatItem flat;
  read(index, flat);
  encode::EncodedItem item = origin(index);
  std::int64_t token = 0, span = 0;
  for (std::size_t s = 0; s < flat.sequence_ends.size(); ++s) {
    encode::EncodedSequence& sequence = item.sequences.emplace_back();
    sequence.ids.assign(flat.ids.begin() + token, flat.ids.begin() + flat.sequence_ends[s]);
    sequence.label_spans.assign(flat.spans.begin() + span, flat.spans.begin() + flat.span_ends[s]);
    if (std::ranges::any_of(flat.span_weights, [](float weight) { return weight != 1; }))
      sequence.span_weights.assign(flat.span_weights.begin() + span, flat.span_weights.begin() + flat.span_ends[s]);
    token = flat.sequence_ends[s];
    span = flat.span_ends[s];
  }
  return item;
}

encode::EncodedItem PackReader::origin(std::int64_t index) const {
  require(index >= 0 && index < num_items(), "{}: the pack has {} items", where(index), num_items());
  encode::EncodedItem item;
  std::int32_t category = 0;
  read_range<std::int32_t>(PackArray::category, index, {&category, 1});
  require(category >= 0 && static_cast<std::size_t>(category) < attributes_.category_names.size(),
          "{}: category {} of {}: the file is damaged, pack it again", where(index), category, attributes_.category_names.size());
  item.category = attributes_.category_names[static_cast<std::size_t>(category)];
  read_range<std::int32_t>(PackArray::dataset, index, {&item.dataset, 1});
  read_range<std::int64_t>(PackArray::source_index, index, {&item.source_index, 1});
  std::array<std::int64_t, 2> range{};
  read_offsets(PackArray::tag_offsets, index, range, index);
  std::string tags(static_cast<std::size_t>(range[1] - range[0]), '\0');
  read_range<char>(PackArray::tags, range[0], tags);
  std::uint32_t stored = 0;
  read_range<std::uint32_t>(PackArray::item_crc32c, 2 * index + 1, {&stored, 1});
  require(stored == origin_crc(item.category, item.dataset, item.source_index, tags),
          "{}: the CRC32C of its category, dataset, index and tags does not match: the file is damaged, copy or pack it again",
          where(index));
  item.tags = tags_from_json(tags);
  return item;
}

const PackReader::LengthTables& PackReader::lengths() const {
  std::call_once(lengths_->once, [this] {
    const auto items = static_cast<std::size_t>(num_items());
    lengths_->tokens.resize(items);
    lengths_->labels.resize(items);
    read_range<std::int32_t>(PackArray::item_tokens, 0, lengths_->tokens);
    read_range<std::int32_t>(PackArray::item_labels, 0, lengths_->labels);
    for (std::size_t i = 0; i < items; ++i) {
      const std::int32_t tokens = lengths_->tokens[i], labels = lengths_->labels[i];
      require(tokens >= 1 && tokens <= attributes_.max_item_tokens && labels >= 0 && labels <= tokens,
              "{}: its length table has {} tokens and {} labels: the file is damaged, copy or pack it again",
              where(static_cast<std::int64_t>(i)), tokens, labels);
    }
  });
  return *lengths_;
}

std::vector<std::int64_t> PackReader::all_offsets(PackArray array) const {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(extent(array).elements));
  read_offsets(array, 0, offsets, std::nullopt);
  return offsets;
}

std::vector<std::int64_t> PackReader::sequence_tokens() const {
  std::vector<std::int64_t> tokens = all_offsets(PackArray::sequence_offsets);
  std::adjacent_difference(tokens.begin(), tokens.end(), tokens.begin());
  tokens.erase(tokens.begin());
  return tokens;
}

std::vector<std::int64_t> PackReader::item_offsets() const {
  return all_offsets(PackArray::item_offsets);
}

std::vector<std::string> PackReader::item_tags() const {
  const std::vector<std::int64_t> offsets = all_offsets(PackArray::tag_offsets);
  std::string text(static_cast<std::size_t>(offsets.back()), '\0');
  read_range<char>(PackArray::tags, 0, text);
  std::vector<std::string> tags;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
    tags.push_back(text.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(offsets[i + 1] - offsets[i])));
  return tags;
}

/// Returns `array` for all items: an index per item, which must be below `names`.
std::vector<std::int32_t> PackReader::numbers(PackArray array, std::string_view what, std::size_t names) const {
  std::vector<std::int32_t> all(static_cast<std::size_t>(num_items()));
  read_range<std::int32_t>(array, 0, all);
  for (std::size_t i = 0; i < all.size(); ++i)
    require(all[i] >= 0 && static_cast<std::size_t>(all[i]) < names,
            "{}: {} {} of {}: the file is damaged, copy or pack it again", where(static_cast<std::int64_t>(i)), what, all[i],
            names);
  return all;
}

std::vector<std::int32_t> PackReader::item_categories() const {
  return numbers(PackArray::category, "category", attributes_.category_names.size());
}

std::vector<std::int32_t> PackReader::item_datasets() const {
  return numbers(PackArray::dataset, "dataset", attributes_.sources.size());
}

std::span<const std::int32_t> PackReader::item_tokens() const {
  return lengths().tokens;
}
std::span<const std::int32_t> PackReader::item_labels() const {
  return lengths().labels;
}

}  // namespace qft::pack
