#include "qft/loader/data_check.h"

#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/hash.h"
#include "qft/encode/record_converter.h"
#include "qft/loader/schedule.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>

namespace qft::loader {
namespace {

constexpr std::size_t kExamples = 5;
constexpr std::int64_t kShortAnswer = 12;  // labels; a longer answer contains more than markers

enum Kind : std::size_t {
  unreadable,
  role,
  turns,
  no_answer,
  nothing_left,
  empty_answer,
  encoding,
  special_token,
  duplicate,
  too_long
};

std::vector<Finding> kinds() {
  return {{"unreadable", "records that cannot be read", true, 0, {}},
          {"unknown_role", "conversations with a role that the tags do not name", true, 0, {}},
          {"roles_out_of_order", "conversations whose roles do not alternate, or that end with a question", true, 0, {}},
          {"no_answer", "records without the answer that the stage learns", true, 0, {}},
          {"empty", "records without any token, or with an empty text instead of an anchor or its document", true, 0, {}},
          {"empty_output", "samples whose answer is empty or was cut off", true, 0, {}},
          {"encoding", "records with replacement (U+FFFD) or control characters: text that was decoded wrongly", true, 0, {}},
          {"special_token",
           "records with text that contains a special token of the tokenizer, which is encoded as that token",
           false,
           0,
           {}},
          {"duplicate", "samples that are the same as an earlier one", false, 0, {}},
          {"over_long", "samples cut to cutoff_len", false, 0, {}}};
}

bool is_hex(std::string_view text, std::string_view digits) {
  return std::equal(text.begin(), text.end(), digits.begin(), digits.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'F' ? a + 32 : a) == b; });
}

// Returns whether the text has characters that indicate a wrong decoding, as bytes or as JSON escapes.
bool has_encoding_trouble(std::string_view text) {
  if (text.find("\xEF\xBF\xBD") != text.npos) return true;
  for (std::size_t at = text.find("\\u"); at != text.npos && at + 6 <= text.size(); at = text.find("\\u", at + 2)) {
    const std::size_t before = text.substr(0, at).find_last_not_of('\\');
    if ((at - (before == text.npos ? 0 : before + 1)) % 2 == 1) continue;  // an escaped backslash
    const std::string_view code = text.substr(at + 2, 4);
    if (is_hex(code, "fffd")) return true;
    if (code.starts_with("000") && code != "0009" && !is_hex(code, "000a") && !is_hex(code, "000d")) return true;
    if (code.starts_with("001")) return true;
  }
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F;
  });
}

class CheckSink : public encode::ItemSink {
 public:
  CheckSink(const pack::Corpus& corpus, std::vector<Finding>& findings) : corpus_(corpus), findings_(findings) {
    for (const encode::DatasetSpec& spec : corpus.datasets())
      for (const std::filesystem::path& file : spec.files) texts_.try_emplace(file, spec, file_ending(file) == ".txt");
    const tokenizer::Tokenizer& tokenizer = corpus.chat_template().tokenizer();
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      if (tokenizer.is_special(id)) special_leads_ += tokenizer.id_to_token(id).substr(0, 1);
    std::ranges::sort(special_leads_);
    special_leads_.erase(std::ranges::unique(special_leads_).begin(), special_leads_.end());
  }

  void begin_record(const encode::RecordText& record) override {
    where_ = record.where();
    if (has_encoding_trouble(record.text)) note(encoding, where_);
    look_for_special_tokens(record);
  }

  void drop(std::int32_t, encode::DropReason reason, const std::string& what) override {
    constexpr Kind kKinds[encode::kDropReasons] = {role,         turns,      no_answer,   empty_answer,
                                                   nothing_left, unreadable, nothing_left};  // in the order of DropReason
    note(kKinds[static_cast<std::size_t>(reason)], what);
  }

  void add(encode::EncodedItem&& item) override {
    Hasher hasher;
    std::int64_t tokens = 0, labels = 0;
    bool is_empty = false;
    for (const encode::EncodedSequence& sequence : item.sequences) {
      hasher.update(sequence.ids.data(), sequence.ids.size() * sizeof(std::int32_t));
      hasher.update(sequence.label_spans.data(), sequence.label_spans.size() * sizeof(encode::Span));
      hasher.update(sequence.span_weights.data(), sequence.span_weights.size() * sizeof(float));
      tokens += static_cast<std::int64_t>(sequence.ids.size());
      labels += sequence.num_labels();
      longest_text = std::max(longest_text, std::ssize(sequence.ids));
      is_empty |= corpus_.learns_tokens() && lacks_answer(sequence);
    }
    const std::string place =
        fmt::format("{}, record {}", corpus_.datasets()[static_cast<std::size_t>(item.dataset)].name, item.source_index);
    if (is_empty) note(empty_answer, place);
    if (const auto [first, fresh] = seen_.emplace(hasher.hex(), place); !fresh)
      note(duplicate, fmt::format("{}: as {}", place, first->second));
    lengths.push_back(static_cast<std::int32_t>(tokens));
    label_counts.push_back(static_cast<std::int32_t>(labels));
  }

  void note(Kind kind, std::string what) {
    if (findings_[kind].count++ < static_cast<std::int64_t>(kExamples)) findings_[kind].examples.push_back(std::move(what));
  }

  std::vector<std::int32_t> lengths, label_counts;
  std::ptrdiff_t longest_text = 0;  // tokens

 private:
  // Reports only the first one of a record.
  void look_for_special_tokens(const encode::RecordText& record) {
    const auto texts = texts_.find(*record.file);
    if (texts == texts_.end()) return;
    const tokenizer::Tokenizer& tokenizer = corpus_.chat_template().tokenizer();
    std::string found;
    try {
      texts->second.each(record, [&](std::string_view column, std::string_view text) {
        if (!found.empty() || text.find_first_of(special_leads_) == text.npos) return;
        ids_.clear();
        tokenizer.encode(text, ids_);
        const auto id = std::ranges::find_if(ids_, [&](std::int32_t i) { return tokenizer.is_special(i); });
        if (id != ids_.end()) found = fmt::format("{}: {}: {}", where_, column, tokenizer.id_to_token(*id));
      });
    } catch (const Error&) {
      return;  // an unreadable record is a separate finding
    }
    if (!found.empty()) note(special_token, std::move(found));
  }

  // True if only markers, white space and an empty thought are learned.
  bool lacks_answer(const encode::EncodedSequence& sequence) const {
    if (sequence.num_labels() > kShortAnswer) return false;
    std::vector<std::int32_t> learned;
    for (const encode::Span& span : sequence.label_spans)
      learned.insert(learned.end(), sequence.ids.begin() + span.begin, sequence.ids.begin() + span.end);
    const encode::ChatTemplate& chat = corpus_.chat_template();
    std::string text = chat.tokenizer().decode(learned, true);
    const std::string thought = chat.spec().thought_open + chat.spec().thought_close;
    if (text.starts_with(thought)) text.erase(0, thought.size());
    return text.find_first_not_of(" \t\r\n") == text.npos;
  }

  const pack::Corpus& corpus_;
  std::vector<Finding>& findings_;
  std::map<std::filesystem::path, encode::RecordTexts> texts_;  // by file
  std::string special_leads_;                                   // the first bytes of special tokens
  std::vector<std::int32_t> ids_;
  std::string where_;
  std::unordered_map<std::string, std::string> seen_;
};

void add_lengths(const CheckSink& sink, DataReport& report) {
  std::vector<std::int32_t> sorted = sink.lengths;
  std::sort(sorted.begin(), sorted.end());
  report.samples = static_cast<std::int64_t>(sorted.size());
  report.tokens = std::accumulate(sorted.begin(), sorted.end(), INT64_C(0));
  report.label_tokens = std::accumulate(sink.label_counts.begin(), sink.label_counts.end(), INT64_C(0));
  if (sorted.empty()) return;
  const std::size_t last = sorted.size() - 1;
  report.shortest = sorted.front();
  report.median = sorted[last / 2];
  report.p90 = sorted[last * 9 / 10];
  report.longest = sorted.back();
  if (report.longest_text) report.longest_text = sink.longest_text;
}

void add_steps(const CheckSink& sink, const config::RunConfig& config, int ranks, DataReport& report) {
  LoaderOptions options = loader_options(config);
  auto learnable = std::make_shared<std::vector<std::int64_t>>();
  for (std::size_t i = 0; i < sink.label_counts.size(); ++i)
    if (sink.label_counts[i] > 0) learnable->push_back(static_cast<std::int64_t>(i));
  if (learnable->empty()) return;
  if (config.data.val_size > 0) {
    const ItemSubset kept =
        split_items(report.samples, config.data.val_size, static_cast<std::uint64_t>(config.training.seed)).first;
    auto both = std::make_shared<std::vector<std::int64_t>>();
    std::set_intersection(kept->begin(), kept->end(), learnable->begin(), learnable->end(), std::back_inserter(*both));
    learnable = std::move(both);
  }
  options.items = std::move(learnable);
  const StepSchedule schedule(sink.lengths, sink.label_counts, options, ranks);
  report.global_batch_size = schedule.global_batch_size();
  report.steps_per_epoch = schedule.steps_per_epoch();
  report.total_steps = schedule.total_steps();
}

}  // namespace

DataReport check_data(config::RunConfig config, pack::CorpusPart part, int ranks) {
  config.data.on_error = "skip";
  config.data.on_error_limit = std::numeric_limits<std::int64_t>::max();
  const auto corpus = pack::Corpus::open(config, part);
  DataReport report;
  report.cutoff_len = config.data.cutoff_len;
  report.token_labels = config.stage().token_labels;
  if (config.stage().sequences == 0) report.longest_text = 0;
  report.findings = kinds();
  CheckSink sink(*corpus, report.findings);
  for (std::size_t chunk = 0; chunk < corpus->num_chunks(); ++chunk)
    for (const pack::RecordCounts& counts : corpus->encode_chunk(chunk, sink)) {
      report.records += counts.records;
      report.findings[too_long].count += counts.truncated;
    }
  add_lengths(sink, report);
  if (part == pack::CorpusPart::train) add_steps(sink, config, ranks, report);
  return report;
}

bool DataReport::has_faults() const {
  return samples == 0 ||
         std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.is_fault && f.count > 0; });
}

nlohmann::ordered_json DataReport::to_json() const {
  nlohmann::ordered_json json{{"ok", !has_faults()},
                              {"records", records},
                              {"samples", samples},
                              {"tokens", tokens},
                              {"label_tokens", label_tokens},
                              {"cutoff_len", cutoff_len},
                              {"sample_tokens_min_median_p90_max", {shortest, median, p90, longest}},
                              {"global_batch_size", global_batch_size},
                              {"steps_per_epoch", steps_per_epoch},
                              {"total_steps", total_steps}};
  for (const Finding& f : findings)
    json["findings"][f.name] = {{"count", f.count}, {"fault", f.is_fault}, {"examples", f.examples}};
  return json;
}

std::string DataReport::to_text() const {
  std::string text = fmt::format(
      "{} records, {} samples, {} tokens{}\n"
      "tokens of a sample: shortest {}, median {}, 90 % up to {}, longest {}{} (cutoff_len {})\n",
      records, samples, tokens, token_labels ? fmt::format(" ({} to learn)", label_tokens) : "", shortest, median, p90, longest,
      longest_text ? fmt::format("; longest text {}", *longest_text) : "", cutoff_len);
  if (total_steps > 0)
    text += fmt::format("steps: {} per epoch, {} in total, global batch {}\n", steps_per_epoch, total_steps, global_batch_size);
  for (const Finding& f : findings) {
    if (f.count == 0) continue;
    text += fmt::format("{}: {} {}\n", f.is_fault ? "fault" : "note", f.count, f.meaning);
    for (const std::string& example : f.examples) text += "  " + example + "\n";
    if (!f.examples.empty() && f.count > static_cast<std::int64_t>(f.examples.size())) text += "  ...\n";
  }
  return text + (has_faults() ? "faults were found\n" : "no faults\n");
}

}  // namespace qft::loader
