#include "qft/pack/print.h"

#include "qft/core/error.h"
#include "qft/core/units.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <numeric>

#include "item_text.h"
#include <fmt/ranges.h>

namespace qft::pack {
namespace {

constexpr std::size_t kShownCategories = 20;

void append(std::string& out, const encode::EncodedSequence& sequence) {
  auto to = std::back_inserter(out);
  out += "{\"ids\":[";
  for (std::size_t i = 0; i < sequence.ids.size(); ++i) fmt::format_to(to, "{}{}", i ? "," : "", sequence.ids[i]);
  out += "],\"label_spans\":[";
  for (std::size_t i = 0; i < sequence.label_spans.size(); ++i)
    fmt::format_to(to, "{}[{},{}]", i ? "," : "", sequence.label_spans[i].begin, sequence.label_spans[i].end);
  out += "]";
  for (std::size_t i = 0; i < sequence.span_weights.size(); ++i)
    fmt::format_to(to, "{}{}", i ? "," : ",\"span_weights\":[", sequence.span_weights[i]);
  out += sequence.span_weights.empty() ? "}" : "]}";
}

// Quantiles of the item lengths: shortest, median, 90 %, longest.
std::vector<std::int32_t> length_quantiles(std::span<const std::int32_t> lengths) {
  std::vector<std::int32_t> sorted(lengths.begin(), lengths.end());
  if (sorted.empty()) return {0, 0, 0, 0};
  std::sort(sorted.begin(), sorted.end());
  const std::size_t last = sorted.size() - 1;
  return {sorted.front(), sorted[last / 2], sorted[last * 9 / 10], sorted.back()};
}

struct LengthBin {
  std::int64_t from, below, items = 0, tokens = 0;
};

// Histogram of the item lengths in powers of two, without empty bins at the ends.
std::vector<LengthBin> length_histogram(std::span<const std::int32_t> lengths) {
  std::vector<LengthBin> bins;
  for (const std::int32_t length : lengths) {
    const auto bin = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(length)) - 1);
    while (bins.size() <= bin) bins.push_back({std::int64_t{1} << bins.size(), std::int64_t{2} << bins.size()});
    ++bins[bin].items;
    bins[bin].tokens += length;
  }
  const auto first = std::find_if(bins.begin(), bins.end(), [](const LengthBin& b) { return b.items > 0; });
  bins.erase(bins.begin(), first);
  return bins;
}

struct CategoryCount {
  std::string name;
  std::int64_t items = 0, tokens = 0;
};

std::vector<CategoryCount> count_categories(const PackReader& pack) {
  std::vector<CategoryCount> counts;
  for (const std::string& name : pack.attributes().category_names) counts.push_back({name});
  const std::vector<std::int32_t> categories = pack.item_categories();
  for (std::size_t i = 0; i < categories.size(); ++i) {
    CategoryCount& count = counts[static_cast<std::size_t>(categories[i])];
    ++count.items;
    count.tokens += pack.item_tokens()[i];
  }
  return counts;
}

std::string bar(std::int64_t part, std::int64_t most) {
  constexpr std::int64_t kWidth = 40;
  return std::string(static_cast<std::size_t>((part * kWidth + most - 1) / most), '#');
}

// Returns the smallest and largest label weight; null if all are 1.
nlohmann::ordered_json weight_bounds(const PackReader& pack) {
  if (!pack.has_weights()) return {};
  const std::vector<float> weights = pack.span_weights();
  const auto [least, most] = std::ranges::minmax(weights);
  return {least, most};
}

}  // namespace

nlohmann::ordered_json summarize(const PackReader& pack) {
  const PackAttributes& a = pack.attributes();
  const auto labels = pack.item_labels();
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const PackSource& s : a.sources)
    sources.push_back({{"name", s.name},
                       {"hash", s.hash},
                       {"records", s.records},
                       {"items", s.items},
                       {"dropped", s.dropped},
                       {"truncated", s.truncated}});
  nlohmann::ordered_json histogram = nlohmann::ordered_json::array(), categories = histogram;
  for (const LengthBin& b : length_histogram(pack.item_tokens()))
    histogram.push_back({{"from", b.from}, {"below", b.below}, {"items", b.items}, {"tokens", b.tokens}});
  for (const CategoryCount& c : count_categories(pack))
    categories.push_back({{"name", c.name}, {"items", c.items}, {"tokens", c.tokens}});
  return {{"path", pack.path().string()},
          {"fingerprint", pack.fingerprint()},
          {"stage", a.stage},
          {"template", a.template_name},
          {"template_hash", a.template_hash},
          {"tokenizer_hash", a.tokenizer_hash},
          {"vocab_size", a.vocab_size},
          {"cutoff_len", a.cutoff_len},
          {"items", pack.num_items()},
          {"sequences", pack.num_sequences()},
          {"tokens", pack.num_tokens()},
          {"label_tokens", std::accumulate(labels.begin(), labels.end(), INT64_C(0))},
          {"label_weights_min_max", weight_bounds(pack)},
          {"item_tokens_min_median_p90_max", length_quantiles(pack.item_tokens())},
          {"length_histogram", std::move(histogram)},
          {"categories", std::move(categories)},
          {"sources", std::move(sources)},
          {"options", a.options}};
}

std::string format_summary(const PackReader& pack) {
  const nlohmann::ordered_json s = summarize(pack);
  const auto bytes = static_cast<double>(std::filesystem::file_size(pack.path()));
  const auto lengths = s["item_tokens_min_median_p90_max"].get<std::vector<std::int64_t>>();
  std::string text = fmt::format(
      "{}: {} items, {} sequences, {} tokens{}, {}\n"
      "  stage {}, template {}, cutoff_len {}, vocabulary {}\n"
      "  item lengths: shortest {}, median {}, 90 % up to {}, longest {}\n"
      "  tokenizer {}, template {}\n  fingerprint {}\n",
      pack.path().string(), pack.num_items(), pack.num_sequences(), pack.num_tokens(),
      pack.attributes().stage_row().token_labels ? fmt::format(" ({} to learn)", s["label_tokens"].get<std::int64_t>()) : "",
      format_bytes(bytes), pack.attributes().stage, pack.attributes().template_name, pack.attributes().cutoff_len,
      pack.attributes().vocab_size, lengths[0], lengths[1], lengths[2], lengths[3], pack.attributes().tokenizer_hash,
      pack.attributes().template_hash, pack.fingerprint());
  if (const auto& weights = s["label_weights_min_max"]; !weights.is_null())
    text += fmt::format("  label weights from {} to {}\n", weights[0].get<float>(), weights[1].get<float>());
  for (const PackSource& source : pack.attributes().sources)
    text += fmt::format("  dataset {}: {} records, {} items, {} dropped, {} cut, files {}\n", source.name, source.records,
                        source.items, source.dropped, source.truncated, source.hash);
  text += "  items by length in tokens:\n";
  const std::vector<LengthBin> bins = length_histogram(pack.item_tokens());
  std::int64_t most = 1;
  for (const LengthBin& b : bins) most = std::max(most, b.items);
  for (const LengthBin& b : bins)
    text += fmt::format("  {:>8} to {:>7} {:>10} {}\n", b.from, b.below - 1, b.items, bar(b.items, most));
  text += "  categories:\n";
  const std::vector<CategoryCount> categories = count_categories(pack);
  for (std::size_t c = 0; c < std::min(categories.size(), kShownCategories); ++c)
    text += fmt::format("  {:>10} items {:>12} tokens  {}\n", categories[c].items, categories[c].tokens,
                        printable(categories[c].name));
  if (categories.size() > kShownCategories)
    text += fmt::format("  ... and {} more (--json lists them)\n", categories.size() - kShownCategories);
  return text;
}

void write_json_lines(const PackReader& pack, std::int64_t first, std::int64_t count, std::ostream& out) {
  const std::int64_t last = std::min(pack.num_items(), first + count);
  std::string line;
  const std::optional<config::SampleKind> kind = sample_kind(pack);
  const bool labelled = kind == config::SampleKind::sequence_label;  // in other stages the tag has no fixed meaning
  for (std::int64_t i = first; i < last && out; ++i) {
    const encode::EncodedItem item = pack.item(i);
    line.clear();
    if (kind == config::SampleKind::feedback) {
      append(line, item.sequences.front());
      line.pop_back();
      line += ",\"kl\":";
      append(line, item.sequences.back());
      line += fmt::format(",\"{}\":{}}}", encode::kFeedbackTag, encode::is_desirable(item.tags));
    } else if (kind && pack.attributes().varying_sequences) {
      line += fmt::format("{{\"{}\":{},\"sequences\":[", encode::kPositivesTag,
                          encode::positives_of(*kind, std::ssize(item.sequences), item.tags));
      for (const encode::EncodedSequence& sequence : item.sequences) {
        append(line, sequence);
        line += ',';
      }
      line.back() = ']';
      if (const auto label = encode::targets_from_tags(item.tags))
        line += fmt::format(",\"{}\":[{}]", encode::kLabelTag, fmt::join(*label, ","));
      line += '}';
    } else if (item.sequences.size() == 2) {
      line += "{\"chosen\":";
      append(line, item.sequences[0]);
      line += ",\"rejected\":";
      append(line, item.sequences[1]);
      line += '}';
    } else {
      append(line, item.sequences.front());
      if (const auto label = labelled ? encode::targets_from_tags(item.tags) : std::nullopt) {
        line.pop_back();
        line += fmt::format(",\"{}\":[{}]}}", encode::kLabelTag, fmt::join(*label, ","));
      }
    }
    line += '\n';
    out << line;
  }
}

}  // namespace qft::pack
