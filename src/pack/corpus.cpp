#include "qft/pack/corpus.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/log.h"
#include "qft/core/units.h"
#include "qft/encode/dataset_keys.h"
#include "qft/encode/record_converter.h"
#include "qft/pack/options.h"

#include <algorithm>
#include <numeric>

#include "passage_items.h"

namespace qft::pack {
namespace {

constexpr std::string_view kPlainTemplate = "empty";  // adds nothing to the texts
constexpr std::size_t kWarnings = 5;                  // broken records with a log line each
constexpr double kChunkBytes = 1 << 20, kManyChunks = 4096;

const std::vector<std::string>& dataset_names(const config::RunConfig& config, CorpusPart part) {
  const auto& names = part == CorpusPart::train ? config.data.dataset : config.data.eval_dataset;
  if (names.empty()) fail_config("{} is not given", part == CorpusPart::train ? "dataset" : "eval_dataset");
  return names;
}

/// min_label leaves out pairs by their label, so there must be pairs and a label.
void check_min_label(const encode::DatasetSpec& spec, const config::Stage& stage) {
  if (!spec.min_label) return;
  if (stage.limits == nullptr)
    fail_config("dataset '{}' has min_label {}, which only stages embedding and reranker use, and the stage is {}: remove it",
                spec.name, *spec.min_label, stage.name);
  if (!spec.passages || spec.columns.label.empty())
    fail_config(
        "dataset '{}' has min_label {}, but no column of {}: name it under columns in dataset_info.json, or remove min_label",
        spec.name, *spec.min_label, spec.passages ? "labels (label)" : "positive documents (positive)");
}

void check_stage(const std::vector<encode::DatasetSpec>& specs, const config::Stage& stage) {
  const bool pairs = stage.has_pairs(), feedback = stage.sample == encode::SampleKind::feedback;
  const bool answers = stage.sample == encode::SampleKind::conversation;
  for (const encode::DatasetSpec& spec : specs) {
    if (spec.passages && stage.limits == nullptr)
      fail_config("dataset '{}' has anchors with documents (column '{}'), which only stages embedding and reranker learn",
                  spec.name, spec.columns.positive);
    check_min_label(spec, stage);
    if (feedback && spec.columns.kto_tag.empty())
      fail_config(
          "dataset '{}' has no marks, but stage kto learns from marks: name their column as kto_tag in dataset_info.json, or "
          "call it kto_tag or label (true or false) in a file that dataset names itself",
          spec.name);
    if (answers && spec.formatting == encode::Formatting::alpaca && spec.columns.response.empty())
      fail_config("dataset '{}' has texts without a column of answers: stage {} learns answers, stage pt learns texts", spec.name,
                  stage.name);
    if (answers && !spec.columns.kto_tag.empty())
      fail_config("dataset '{}' has a kto_tag: stage kto learns from it; for stage {} drop the tag", spec.name, stage.name);
    if (!stage.weighs_labels && !spec.columns.weight.empty())
      fail_config("dataset '{}' has record weights ('{}'), which only stage {} uses: remove weight from its columns", spec.name,
                  spec.columns.weight, config::stage_names([](const config::Stage& row) { return row.weighs_labels; }));
    if (stage.limits != nullptr && spec.ranking)
      fail_config("dataset '{}' holds preference pairs, but stage {} learns {}: name the columns positive and negative",
                  spec.name, stage.name, stage.items);
    if (stage.sample == encode::SampleKind::ranking && spec.columns.positive.empty())
      fail_config(
          "dataset '{}' has no documents, but stage reranker scores documents of queries: name their columns as positive and "
          "negative in dataset_info.json, or call them so in a file that dataset names itself",
          spec.name);
    if (spec.ranking != pairs)
      fail_config(
          "dataset '{}' {} preference pairs (ranking in dataset_info.json, or columns chosen and rejected), and stage {} "
          "learns {}",
          spec.name, spec.ranking ? "holds" : "holds no", stage.name, pairs ? "such pairs" : "single samples");
  }
}

// True if tokenizer_config.json has add_bos_token: documents then start with the tokenizer's BOS token.
bool adds_bos_token(const std::filesystem::path& tokenizer_dir) {
  const std::filesystem::path file = tokenizer_dir / "tokenizer_config.json";
  if (!std::filesystem::is_regular_file(file)) return false;
  const nlohmann::json json = io::read_json(file);
  return json.is_object() && json.value("add_bos_token", nlohmann::json()) == true;
}

nlohmann::json describe(const encode::DatasetSpec& spec) {
  const encode::ColumnNames& c = spec.columns;
  const encode::MessageTags& t = spec.tags;
  nlohmann::json described = {{"name", spec.name},
                              {"formatting", static_cast<int>(spec.formatting)},
                              {"ranking", spec.ranking},
                              {"split", spec.split.text()},
                              {"num_samples", spec.num_samples ? nlohmann::json(*spec.num_samples) : nlohmann::json()},
                              {"columns",
                               {c.prompt, c.query, c.response, c.history, c.messages, c.system, c.tools, c.chosen, c.rejected,
                                c.kto_tag, c.category, c.tags}},
                              {"tags", {t.role, t.content, t.user, t.assistant, t.observation, t.function, t.system}}};
  if (spec.of_v1) described["of_v1"] = true;  // absent otherwise, so that other packs keep their fingerprint
  if (!c.weight.empty()) described["weight"] = c.weight;
  if (!c.documents.empty() || !c.template_kwargs.empty()) described["template_columns"] = {c.documents, c.template_kwargs};
  if (!c.label.empty()) described["columns"].push_back(c.label);  // absent if empty, as in all earlier packs
  if (spec.passages) described["passages"] = {c.positive, c.negatives};
  if (spec.min_label) described["min_label"] = *spec.min_label;
  return described;
}

}  // namespace

std::int64_t RecordCounts::all_dropped() const {
  return std::accumulate(dropped.begin(), dropped.end(), INT64_C(0));
}

RecordCounts& RecordCounts::operator+=(const RecordCounts& other) {
  records += other.records;
  truncated += other.truncated;
  bytes += other.bytes;
  empty_negatives += other.empty_negatives;
  for (std::size_t i = 0; i < dropped.size(); ++i) dropped[i] += other.dropped[i];
  return *this;
}

bool joins_documents(const config::RunConfig& config) {
  return config.stage().has_documents() && (config.data.packing.value_or(true) || config.data.neat_packing);
}

std::int64_t document_block_tokens(const config::RunConfig& config) {
  const bool asked_for = config.data.neat_packing || config.given.contains("packing");
  const std::int64_t tokens = config.data.cutoff_len - (asked_for ? 1 : 0);
  if (tokens < 1) fail_config("cutoff_len {} is too short for packing", config.data.cutoff_len);
  return tokens;
}

std::shared_ptr<const Corpus> Corpus::open(const config::RunConfig& config, CorpusPart part) {
  std::shared_ptr<Corpus> corpus(new Corpus);
  const config::DataArgs& data = config.data;
  corpus->stage_ = &config.stage();
  corpus->specs_ = encode::load_dataset_info(config.folder_of(data.dataset_dir), dataset_names(config, part), config.folders,
                                             corpus->stage_->name);
  check_stage(corpus->specs_, *corpus->stage_);

  encode::EncoderOptions options;
  options.kind = corpus->stage_->sample;
  options.weighs_labels = corpus->stage_->weighs_labels;
  options.cutoff_len = data.cutoff_len;
  options.train_on_prompt = data.train_on_prompt && options.kind == encode::SampleKind::conversation;
  options.mask_history = data.mask_history && options.kind == encode::SampleKind::conversation;
  options.loss_scale = config::parse_loss_scale(data.loss_scale).schemes;
  options.query_prompt = data.query_prompt;
  options.document_prompt = data.document_prompt;
  const bool plain = options.kind == encode::SampleKind::document ||
                     (options.kind == encode::SampleKind::sequence_label && data.template_name == kPlainTemplate);
  options.add_bos_token = plain && adds_bos_token(config.tokenizer_path());
  corpus->make_encoders(config, options);

  if (joins_documents(config)) corpus->block_tokens_ = document_block_tokens(config);
  corpus->skip_broken_ = data.on_error == "skip";
  corpus->max_skipped_ = static_cast<std::size_t>(data.on_error_limit);
  corpus->open_sources(config);
  const bool by_records =
      corpus->block_tokens_ > 0 || options.kind == encode::SampleKind::feedback || config.is_given("preprocessing_batch_size");
  corpus->chunk_records_ = by_records ? data.preprocessing_batch_size : corpus->default_chunk_records();
  corpus->record_options(config);
  config::RunConfig named = config;  // a template that was derived from the model counts as given
  if (named.data.template_name.empty() && !corpus->stage_->has_documents())
    named.data.template_name = corpus->encoder_->chat_template().spec().name;
  corpus->template_options_ = template_options(named);
  return corpus;
}

void Corpus::make_encoders(const config::RunConfig& config, const encode::EncoderOptions& options) {
  encoder_ = std::make_unique<encode::Encoder>(encode::ChatTemplate::for_packing(config), options);
  if (stage_->has_documents()) return;  // documents use no template
  for (const encode::DatasetSpec& spec : specs_) {
    if (spec.template_name.empty() || others_.contains(spec.template_name)) continue;
    const config::RunConfig other = encode::with_template(config, spec.template_name);
    try {
      others_.emplace(spec.template_name, std::make_unique<encode::Encoder>(encode::ChatTemplate::for_packing(other), options));
    } catch (const ConfigError& e) {
      fail_config("dataset '{}' has the template '{}': {}", spec.name, spec.template_name, e.what());
    }
    // Stop words that are not tokens are added to the vocabulary: two templates would give them the same ids.
    const std::int64_t mine = encoder_->chat_template().tokenizer().vocab_size(),
                       its = others_.at(spec.template_name)->chat_template().tokenizer().vocab_size();
    if (mine != its)
      fail_config(
          "dataset '{}' has the template '{}', with which the vocabulary has {} tokens, with the run's it has {}: its stop "
          "words are not tokens of this tokenizer; pack the dataset separately",
          spec.name, spec.template_name, its, mine);
    log::info("dataset {}: template {}", spec.name, spec.template_name);
  }
}

const encode::Encoder& Corpus::encoder_of(std::int32_t dataset) const {
  const auto other = others_.find(specs_[static_cast<std::size_t>(dataset)].template_name);
  return other == others_.end() ? *encoder_ : *other->second;
}

void Corpus::open_sources(const config::RunConfig& config) {
  std::vector<encode::DatasetExtent> extents;
  for (std::size_t d = 0; d < specs_.size(); ++d) {
    sources_.push_back(encode::RecordSource::open(specs_[d].files));
    encode::require_keys(specs_[d], *sources_[d]);
    encode::DatasetExtent& extent = extents.emplace_back();
    extent.parts = specs_[d].split.ranges(sources_[d]->size());
    for (const encode::RecordRange& part : extent.parts) extent.records += part.size();
    extent.num_samples = specs_[d].num_samples;
    extent.max_samples = config.data.max_samples;
    if (const std::int64_t all = sources_[d]->size(), taken = extent.taken(); taken != all)
      log::info("dataset {}: {} of {} taken", specs_[d].name, taken, count_noun(all, "record"));
  }
  encode::MixOptions mix{config.data.mix_strategy, config.data.interleave_probs,
                         static_cast<std::uint64_t>(config.training.seed)};
  order_ = std::make_unique<encode::RecordOrder>(extents, mix);
}

// Returns the number of records in an average chunk of a megabyte; more in a very large corpus.
std::int64_t Corpus::default_chunk_records() const {
  double records = 0, bytes = 0;
  for (const auto& source : sources_) {
    records += static_cast<double>(source->size());
    bytes += static_cast<double>(source->bytes());
  }
  const double all = bytes / records * static_cast<double>(order_->size());
  const double chunk = std::clamp(all / kManyChunks, kChunkBytes, 16 * kChunkBytes);
  return std::max<std::int64_t>(static_cast<std::int64_t>(chunk * records / bytes), 1);
}

void Corpus::record_options(const config::RunConfig& config) {
  const config::DataArgs& data = config.data;
  const encode::EncoderOptions& encoder = encoder_->options();
  options_ = {{"train_on_prompt", encoder.train_on_prompt},
              {"mask_history", encoder.mask_history},
              {"add_bos_token", encoder.add_bos_token},
              {"block_tokens", block_tokens_},
              {"on_error", data.on_error},
              {"mix_strategy", data.mix_strategy},
              {"interleave_probs", data.interleave_probs}};
  if (!encoder.loss_scale.empty()) options_["loss_scale"] = encoder.loss_scale;
  if (!encoder.query_prompt.empty()) options_["query_prompt"] = encoder.query_prompt;
  if (!encoder.document_prompt.empty()) options_["document_prompt"] = encoder.document_prompt;
  if (block_tokens_ > 0 || stage_->sample == encode::SampleKind::feedback) options_["chunk_records"] = chunk_records_;
  if (data.max_samples) options_["max_samples"] = *data.max_samples;
  bool draws = !data.interleave_probs.empty();
  for (const encode::DatasetSpec& spec : specs_) {
    nlohmann::json& described = options_["datasets"].emplace_back(describe(spec));
    const auto other = others_.find(spec.template_name);
    if (other != others_.end())
      described["template"] = {{"name", spec.template_name}, {"hash", other->second->chat_template().hash()}};
    draws |= spec.num_samples.has_value();
  }
  if (draws) options_["seed"] = config.training.seed;
}

std::size_t Corpus::num_chunks() const {
  return static_cast<std::size_t>((order_->size() + chunk_records_ - 1) / chunk_records_);
}

PackAttributes Corpus::attributes() const {
  PackAttributes attributes;
  const encode::ChatTemplate& chat = encoder_->chat_template();
  attributes.tokenizer_hash = chat.tokenizer().hash();
  attributes.template_hash = chat.hash();
  attributes.template_name = chat.spec().name;
  attributes.stage = stage_->name;
  attributes.vocab_size = chat.tokenizer().vocab_size();
  attributes.varying_sequences = stage_->sequences == 0;
  attributes.cutoff_len = encoder_->options().cutoff_len;
  attributes.options = options_;
  attributes.template_options = template_options_;
  for (std::size_t d = 0; d < specs_.size(); ++d) {
    PackSource& source = attributes.sources.emplace_back();
    source.name = specs_[d].name;
    source.hash = sources_[d]->hash();
    for (const auto& [path, bytes] : sources_[d]->files())
      source.files.push_back({replace_invalid_utf8(path.filename().string()), bytes});
  }
  return attributes;
}

// Encodes one chunk, with a cursor and a converter for each dataset in it.
class Corpus::ChunkReader {
 public:
  /// For the chunk that ends before record `end` of the order.
  ChunkReader(const Corpus& corpus, encode::ItemSink& sink, std::int64_t end)
      : corpus_(corpus), sink_(sink), end_(end), open_(corpus.specs_.size()), counts_(corpus.specs_.size()) {}

  void read(const encode::RecordRef& ref) {
    RecordCounts& counts = counts_[static_cast<std::size_t>(ref.dataset)];
    OpenDataset& dataset = open(ref.dataset);
    const encode::RecordText record = dataset.cursor.at(ref.record);
    ++counts.records;
    counts.bytes += static_cast<std::int64_t>(record.text.size());
    sink_.begin_record(record);
    guarded(ref.dataset, [&] { return record.where(); }, counts, [&] { take(ref, record, dataset.converter.convert(record)); });
  }

  std::vector<RecordCounts> finish() {
    encode_feedback();
    cut_blocks();
    return std::move(counts_);
  }

 private:
  struct Feedback {
    encode::RecordRef ref;
    std::string where;
    encode::Conversation conversation;
  };

  // Runs `body` for one record. A broken record is an error, or is skipped and logged.
  template <class Where, class Body>
  void guarded(std::int32_t dataset, const Where& where, RecordCounts& counts, Body&& body) {
    try {
      body();
    } catch (const ConfigError&) {
      throw;  // not the record's fault
    } catch (const Error& error) {
      if (!corpus_.skip_broken_) fail("{}: {} (on_error: skip drops such records)", where(), error.what());
      ++counts.dropped[static_cast<std::size_t>(encode::DropReason::unreadable)];
      const std::string what = fmt::format("{}: {}", where(), error.what());
      sink_.drop(dataset, encode::DropReason::unreadable, what);
      corpus_.note_skipped(what);
    }
  }

  // Stage kto: each answer is paired with the previous answer in the chunk, the first with the last.
  void encode_feedback() {
    if (feedback_.empty()) return;
    encode::Message other =
        feedback_.size() > 1 ? feedback_.back().conversation.responses.front() : answer_beyond(feedback_.front());
    for (Feedback& f : feedback_) {
      RecordCounts& counts = counts_[static_cast<std::size_t>(f.ref.dataset)];
      encode::Message answer = f.conversation.responses.front();
      f.conversation.responses.push_back(std::exchange(other, std::move(answer)));
      guarded(
          f.ref.dataset, [&] { return f.where; }, counts,
          [&] {
            f.conversation.tags.emplace_back(encode::kFeedbackTag, *f.conversation.desirable ? "true" : "false");
            encode(f.ref, [&] { return f.where; }, f.conversation, counts);
          });
    }
  }

  // For a chunk with one record only: returns the answer of the next later record that has one, wrapping around at the end.
  encode::Message answer_beyond(const Feedback& lone) {
    const std::int64_t records = corpus_.order_->size();
    for (std::int64_t i = 0; i < records; ++i) {
      const encode::RecordRef ref = corpus_.order_->at((end_ + i) % records);
      if (ref.dataset == lone.ref.dataset && ref.record == lone.ref.record) continue;
      if (auto found = feedback_in(ref)) return found->responses.front();
    }
    throw ConfigError(
        fmt::format("{}: stage kto estimates the KL divergence from another record's answer, but no other record has a mark "
                    "and an answer: add records",
                    lone.where));
  }

  // Returns the conversation of a record with a mark and one answer; nullopt for other records, which their own chunk reports.
  std::optional<encode::Conversation> feedback_in(const encode::RecordRef& ref) {
    OpenDataset& dataset = open(ref.dataset);
    try {
      auto converted = dataset.converter.convert(dataset.cursor.at(ref.record));
      auto* conversation = std::get_if<encode::Conversation>(&converted);
      if (conversation == nullptr || !is_feedback(*conversation) || conversation->responses.front().is_empty())
        return std::nullopt;
      return std::move(*conversation);
    } catch (const ConfigError&) {
      throw;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  static bool is_feedback(const encode::Conversation& conversation) {
    return conversation.answer_fault.empty() && conversation.desirable && conversation.responses.size() == 1;
  }

  void cut_blocks() {
    const std::int64_t block = corpus_.block_tokens_;
    if (block == 0) return;
    const auto ids_end = static_cast<std::int64_t>(joined_.size());
    std::size_t document = 0;
    for (std::int64_t begin = 0; begin + block <= ids_end; begin += block) {
      while (document + 1 < documents_.size() && documents_[document + 1].first <= begin) ++document;
      encode::EncodedSequence sequence;
      sequence.ids.assign(joined_.begin() + begin, joined_.begin() + begin + block);
      if (const auto start = corpus_.encoder_->block_start()) sequence.ids.front() = *start;
      sequence.label_spans = {{0, static_cast<std::int32_t>(block)}};
      sink_.add(item_of(documents_[document].second, {std::move(sequence)}, {}));
    }
  }

  struct OpenDataset {
    OpenDataset(const encode::RecordSource& source, const encode::DatasetSpec& spec)
        : cursor(source), converter(spec, source.is_text()) {}
    encode::RecordCursor cursor;
    encode::RecordConverter converter;
  };

  OpenDataset& open(std::int32_t dataset) {
    const auto d = static_cast<std::size_t>(dataset);
    if (!open_[d]) open_[d] = std::make_unique<OpenDataset>(*corpus_.sources_[d], corpus_.specs_[d]);
    return *open_[d];
  }

  void take(const encode::RecordRef& ref, const encode::RecordText& record,
            std::variant<encode::Conversation, encode::Drop> converted) {
    RecordCounts& counts = counts_[static_cast<std::size_t>(ref.dataset)];
    const auto where = [&] { return record.where(); };
    if (const auto* reason = std::get_if<encode::Drop>(&converted)) return drop(ref, *reason, where, counts);
    auto& conversation = std::get<encode::Conversation>(converted);
    if (corpus_.block_tokens_ > 0) {
      const auto begin = static_cast<std::int64_t>(joined_.size());
      corpus_.encoder_->append_document(conversation, joined_);
      documents_.emplace_back(begin, ref);
    } else if (corpus_.encoder_->options().kind == encode::SampleKind::feedback) {
      if (!conversation.answer_fault.empty()) throw Error(conversation.answer_fault);
      if (!is_feedback(conversation))
        return drop(ref,
                    {encode::DropReason::no_answer,
                     fmt::format("'{}' is not true or false, or there is no answer", spec_of(ref).columns.kto_tag)},
                    where, counts);
      if (conversation.responses.front().is_empty()) return drop(ref, {encode::DropReason::empty_answer}, where, counts);
      feedback_.push_back({ref, where(), std::move(conversation)});
    } else if (corpus_.encoder_->options().kind == encode::SampleKind::sequence_label) {
      const std::string& column = spec_of(ref).columns.label;
      if (!column.empty() && conversation.label.empty())
        return drop(ref, {encode::DropReason::no_answer, fmt::format("'{}' is missing or null", column)}, where, counts);
      if (!column.empty()) conversation.tags.emplace_back(encode::kLabelTag, conversation.label);
      encode(ref, where, conversation, counts);
    } else if (corpus_.stage_->limits != nullptr) {
      if (auto why = prepare_passages(conversation, spec_of(ref), corpus_.stage_->sample, counts.empty_negatives))
        return drop(ref, *why, where, counts);
      encode(ref, where, conversation, counts);
    } else {
      encode(ref, where, conversation, counts);
    }
  }

  template <class Where>
  void encode(const encode::RecordRef& ref, const Where& where, const encode::Conversation& conversation, RecordCounts& counts) {
    auto encoded = corpus_.encoder_of(ref.dataset).encode(conversation);
    if (const auto* reason = std::get_if<encode::DropReason>(&encoded))
      return drop(ref, explain(*reason, spec_of(ref)), where, counts);
    auto& samples = std::get<std::vector<encode::Encoded>>(encoded);
    counts.truncated += std::ranges::any_of(samples, &encode::Encoded::truncated);
    for (encode::Encoded& sample : samples) sink_.add(item_of(ref, std::move(sample.sequences), conversation));
  }

  encode::EncodedItem item_of(const encode::RecordRef& ref, std::vector<encode::EncodedSequence> sequences,
                              const encode::Conversation& conversation) {
    encode::EncodedItem item;
    item.sequences = std::move(sequences);
    item.category = conversation.category.empty() ? spec_of(ref).name : conversation.category;
    item.tags = conversation.tags;
    item.dataset = ref.dataset;
    item.source_index = ref.record;
    return item;
  }

  template <class Where>
  void drop(const encode::RecordRef& ref, const encode::Drop& why, const Where& where, RecordCounts& counts) {
    ++counts.dropped[static_cast<std::size_t>(why.reason)];
    sink_.drop(ref.dataset, why.reason, why.detail.empty() ? where() : fmt::format("{}: {}", where(), why.detail));
  }

  // Explains the encoder's reason with the names of the columns.
  static encode::Drop explain(encode::DropReason reason, const encode::DatasetSpec& spec) {
    const encode::ColumnNames& c = spec.columns;
    if (reason == encode::DropReason::no_tokens && spec.passages)
      return {reason, "cutoff_len leaves no token of a document: raise it, or shorten the query"};
    if (reason != encode::DropReason::no_answer) return {reason};
    if (spec.ranking)
      return {reason, fmt::format("'{}' or '{}' is missing or null", c.chosen.empty() ? c.messages : c.chosen, c.rejected)};
    return spec.formatting == encode::Formatting::alpaca
               ? encode::Drop{reason, fmt::format("'{}' is missing or null", c.response)}
               : encode::Drop{reason};
  }
  const encode::DatasetSpec& spec_of(const encode::RecordRef& ref) const {
    return corpus_.specs_[static_cast<std::size_t>(ref.dataset)];
  }

  const Corpus& corpus_;
  encode::ItemSink& sink_;
  std::int64_t end_;
  std::vector<std::unique_ptr<OpenDataset>> open_;
  std::vector<RecordCounts> counts_;
  std::vector<Feedback> feedback_;                                     // stage kto: all records of the chunk
  std::vector<std::int32_t> joined_;                                   // documents end to end
  std::vector<std::pair<std::int64_t, encode::RecordRef>> documents_;  // begin of each document in joined_
};

void Corpus::note_skipped(const std::string& what) const {
  const std::size_t count = ++skipped_;
  if (count <= kWarnings) log::warn("{}: skipped", what);
  if (count > max_skipped_)
    throw ConfigError(
        fmt::format("more than on_error_limit {} records are broken, the last is {}: repair the data, or raise the limit",
                    max_skipped_, what));
}

std::vector<RecordCounts> Corpus::encode_chunk(std::size_t chunk, encode::ItemSink& sink) const {
  QFT_ASSERT(chunk < num_chunks(), "chunk {} of {}", chunk, num_chunks());
  const std::int64_t first = static_cast<std::int64_t>(chunk) * chunk_records_;
  const std::int64_t last = std::min(first + chunk_records_, order_->size());
  ChunkReader reader(*this, sink, last);
  for (std::int64_t i = first; i < last; ++i) reader.read(order_->at(i));
  return reader.finish();
}

}  // namespace qft::pack
