#include "qft/engine/data_setup.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/units.h"
#include "qft/encode/chat_template.h"
#include "qft/engine/objectives.h"
#include "qft/engine/token_rows.h"
#include "qft/inputs/inputs.h"
#include "qft/io/file.h"
#include "qft/job/output_dir.h"
#include "qft/pack/print.h"
#include "qft/tokenizer/tokenizer.h"

#include <algorithm>

#include "item_count.h"
#include <fmt/ranges.h>

namespace qft::engine {
namespace {

namespace fs = std::filesystem;
using pack::CorpusPart;

/// The default path of a pack: in output_dir, so the next run finds it.
fs::path own_pack(const config::RunConfig& config, CorpusPart part) {
  return fs::path(config.training.output_dir) / job::kPackFolder / (part == CorpusPart::train ? "train.h5" : "eval.h5");
}

/// True if a pack of exactly these inputs exists at `path`.
bool have_pack(const config::RunConfig& config, const model::ModelConfig& model, comm::Communicator& comm, CorpusPart part,
               const fs::path& path, const pack::BeforePacking& before) {
  const auto outlook = pack::preview_datasets(config, part, comm, path, before);
  if (outlook.vocab_size > model.vocab_size)
    fail_config("tokenizer '{}' and template have {} token ids, model '{}' has {}: use the model's own tokenizer",
                config.tokenizer_path(), outlook.vocab_size, config.model.model_name_or_path, model.vocab_size);
  const auto& names = part == CorpusPart::train ? config.data.dataset : config.data.eval_dataset;
  log::info("{}: {}; {} of {} chunks of them read and encoded{}", fmt::join(names, ", "), count_noun(outlook.records, "record"),
            outlook.chunks_read, outlook.chunks,
            outlook.is_current ? fmt::format("; packed already: '{}'", path.string()) : "; to be packed at the start");
  return outlook.is_current;
}

/// Packs the datasets of `part` into `path`, unless that pack exists already; returns this node's path of the pack. With stage_to
/// only the ranks that see rank 0's folder do the packing; then the pack is copied to every node's local disk.
fs::path make_pack(const config::RunConfig& config, comm::Communicator& comm, CorpusPart part, const fs::path& path,
                   const pack::BeforePacking& before) {
  const int workers = pack::default_workers(config);
  if (config.model.stage_to.empty()) {
    pack::pack_datasets(config, part, comm, path, workers, before);
    return path;
  }
  comm::agreed(comm, [&] {
    if (comm.rank() == 0) io::probe_writable(path.parent_path());
  });
  const bool packs = job::ranks_sharing(comm, path.parent_path())[static_cast<std::size_t>(comm.rank())];
  const auto group = comm.split(packs ? 0 : 1, comm.rank(), "packing");
  comm::agreed(comm, [&] {
    if (packs) pack::pack_datasets(config, part, *group, path, workers, before);
  });
  return inputs::stage_pack(config, path, comm::Session::current());
}

struct OpenPack {
  std::shared_ptr<const pack::PackReader> pack;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
};

/// The packs that this start made. Removes them if their items are refused, so that a refused run leaves nothing behind.
class NewPacks {
 public:
  explicit NewPacks(bool removes) : removes_(removes) {}
  ~NewPacks() {
    std::error_code ignored;
    for (const fs::path& path : made_)
      if (removes_) fs::remove(path, ignored);
  }
  NewPacks(const NewPacks&) = delete;
  NewPacks& operator=(const NewPacks&) = delete;

  /// Calls open(before) and notes whether that packs `path`.
  template <class Open>
  OpenPack watched(const fs::path& path, const pack::BeforePacking& before, const Open& open) {
    bool packs = false;
    OpenPack opened = open([&](const pack::PackAttributes& attributes, comm::Communicator& packing) {
      packs = true;
      if (before) before(attributes, packing);
    });
    if (packs && opened.pack) made_.push_back(path);
    return opened;
  }
  void keep() { made_.clear(); }

 private:
  bool removes_;
  std::vector<fs::path> made_;
};

/// The pack may have set the stage. Throws ConfigError if the stage does not train on its items.
void require_items_of(const pack::PackReader& pack, const config::RunConfig& config) {
  const auto& have = pack.attributes();
  const config::Stage& stage = config.stage();
  if (have.sequences_per_item == stage.sequences && stage.trains_on_items_of(have.stage_row())) return;
  fail_config("'{}' was packed for stage {}, {} sequences an item, but {} trains on {}: give a pack of that stage, or none",
              pack.path().string(), have.stage,
              have.varying_sequences ? fmt::format("1 to {}", have.max_item_sequences) : std::to_string(have.sequences_per_item),
              stage.name, stage.items);
}

/// Opens the pack `given`, or the pack of the datasets of `part` (made first, or null if left out), and checks that it fits.
OpenPack open_pack(const config::RunConfig& config, const model::ModelConfig& model, comm::Communicator& comm,
                   const std::string& given, CorpusPart part, MissingPacks missing = MissingPacks::make,
                   const pack::BeforePacking& before = {}) {
  fs::path path = given;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::string template_hash;
  comm::agreed(comm, [&] {  // refuse an unknown template before packing anything
    tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path());
    const auto chat = encode::ChatTemplate::from_config(config, tokenizer);
    template_hash = chat.hash();
    require_token_rows(chat.tokenizer(), config.tokenizer_path(), config.model.model_name_or_path, model.vocab_size);
  });
  if (given.empty()) {
    if (config.training.output_dir.empty())
      fail_config("neither a pack nor an output_dir to make one in is given: add eval_pack=, pack= or output_dir=");
    path = own_pack(config, part);
    if (missing == MissingPacks::make)
      path = make_pack(config, comm, part, path, before);
    else if (!have_pack(config, model, comm, part, path, before))
      return {};
  }
  std::shared_ptr<const pack::PackReader> pack;
  comm::agreed(comm, [&] {
    pack = pack::PackReader::open(path);
    pack->check_against({tokenizer->hash(), template_hash, model.vocab_size, config.data.cutoff_len});
    require_items_of(*pack, config);
  });
  return {std::move(pack), std::move(tokenizer)};
}

/// Removes samples without labels from `items` (null: all). LLaMA-Factory keeps them, without effect.
loader::ItemSubset learnable(const pack::PackReader& pack, loader::ItemSubset items, bool warns) {
  if (!pack.attributes().stage_row().token_labels) return items;
  const auto labels = pack.item_labels();
  const auto all = static_cast<std::int64_t>(items ? items->size() : labels.size());
  auto kept = std::make_shared<std::vector<std::int64_t>>();
  for (std::int64_t i = 0; i < all; ++i) {
    const std::int64_t item = items ? (*items)[static_cast<std::size_t>(i)] : i;
    if (labels[static_cast<std::size_t>(item)] > 0) kept->push_back(item);
  }
  if (static_cast<std::int64_t>(kept->size()) == all) return items;
  if (kept->empty()) fail_config("'{}': no sample has an answer to learn{}", pack.path().string(), cut_words(pack));
  if (warns)
    log::warn("'{}': {} of {} samples have no answer to learn and are left out{}", pack.path().string(),
              all - static_cast<std::int64_t>(kept->size()), all, cut_words(pack));
  return kept;
}

/// Returns the tokens of each item, or of its longest sequence if their number varies.
std::vector<std::int64_t> longest_tokens(const pack::PackReader& pack) {
  const auto tokens = pack.item_tokens();
  std::vector<std::int64_t> longest(tokens.begin(), tokens.end());
  if (!pack.attributes().varying_sequences) return longest;
  const std::vector<std::int64_t> sequences = pack.sequence_tokens(), offsets = pack.item_offsets();
  for (std::size_t i = 0; i < longest.size(); ++i)
    longest[i] = *std::max_element(sequences.begin() + offsets[i], sequences.begin() + offsets[i + 1]);
  return longest;
}

/// Warns of samples longer than the model's positions.
void warn_of_long(const pack::PackReader& pack, const loader::ItemSubset& items, const model::ModelConfig& model,
                  const comm::Communicator& comm) {
  const std::vector<std::int64_t> tokens = longest_tokens(pack);
  std::int64_t longer = 0;
  for (std::size_t i = 0; i < (items ? items->size() : tokens.size()); ++i)
    longer += tokens[items ? static_cast<std::size_t>((*items)[i]) : i] > model.max_position_embeddings;
  if (longer > 0 && comm.rank() == 0)
    log::warn(
        "'{}': {} samples have more tokens than the model has positions ({}, max_position_embeddings in its config.json, with "
        "its rope scaling): the model was not trained for positions beyond that; lower cutoff_len to it, or use a model with a "
        "longer context",
        pack.path().string(), longer, model.max_position_embeddings);
}

/// Checks on rank 0 that the items suit the stage. Collective.
void check_items(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig& config,
                 comm::Communicator& comm) {
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    if (const ObjectiveRow& row = objective_of(config); row.check_items != nullptr) row.check_items(pack, items, config);
  });
}

EvalSet learnable(EvalSet set, const comm::Communicator& comm) {
  set.items = learnable(*set.pack, std::move(set.items), comm.rank() == 0);
  return set;
}

bool has_eval_source(const config::RunConfig& config) {
  return !config.data.eval_pack.empty() || !config.data.eval_dataset.empty();
}

/// Assigns curriculum levels to the pack's items. If no sample has a level: warns, and keeps the usual order.
void add_curriculum(const config::RunConfig& config, const pack::PackReader& pack, bool warns, loader::LoaderOptions& options) {
  loader::CurriculumTable table = loader::parse_curriculum(config.data.curriculum);
  std::string level_names;
  for (const std::string& name : table.levels) level_names += (level_names.empty() ? "" : ", ") + name;
  std::vector<std::int32_t> level_of;  // by category
  for (const std::string& name : pack.attributes().category_names) {
    const auto level = std::find(table.levels.begin(), table.levels.end(), name);
    level_of.push_back(level == table.levels.end() ? -1 : static_cast<std::int32_t>(level - table.levels.begin()));
  }
  std::vector<std::int32_t> levels = pack.item_categories();
  for (std::int32_t& level : levels) level = level_of.at(static_cast<std::size_t>(level));
  const auto without = std::count(levels.begin(), levels.end(), -1);
  if (without == static_cast<std::ptrdiff_t>(levels.size())) {
    if (warns)
      log::warn(
          "use_curriculum: no sample has one of the levels {} (column `difficulty`, or `category` in "
          "dataset_info.json): samples keep the usual order",
          level_names);
    return;
  }
  if (without > 0 && warns)
    log::warn("use_curriculum: {} of {} samples have none of the levels {} and are never used", without, levels.size(),
              level_names);
  options.curriculum_seed =
      static_cast<std::uint64_t>(config.data.curriculum_seed.value_or(static_cast<std::int64_t>(options.seed)));
  options.item_levels = std::move(levels);
  options.curriculum = std::move(table);
}

loader::LoaderOptions options_of(const config::RunConfig& config, const pack::PackReader& pack, loader::ItemSubset items,
                                 bool warns) {
  loader::LoaderOptions options = loader::loader_options(config);
  options.items = std::move(items);
  if (config.data.use_curriculum) add_curriculum(config, pack, warns, options);
  return options;
}

/// Splits a pack's items into the training and the validation part.
std::pair<loader::ItemSubset, loader::ItemSubset> split(const config::RunConfig& config, const pack::PackReader& pack) {
  if (has_eval_source(config) || config.data.val_size <= 0.0) return {};
  return loader::split_items(pack.num_items(), config.data.val_size, static_cast<std::uint64_t>(config.training.seed));
}

}  // namespace

comm::Place data_place(const config::RunConfig& config, const comm::Communicator& comm) {
  return parallel::data_place(comm.rank(), comm.size(), static_cast<int>(config.parallel.context_parallel),
                              static_cast<int>(config.parallel.tensor_parallel));
}

bool has_labels(const EvalSet& set) {
  const std::vector<std::string> tags = set.pack->item_tags();
  const ItemCount labelled(*set.pack, set.items, [&](std::int64_t number) {
    return encode::targets_from_tags(pack::tags_from_json(tags.at(static_cast<std::size_t>(number)))).has_value();
  });
  return labelled.count == labelled.all;
}

bool has_documents(const EvalSet& set, const config::RunConfig& config) {
  if (config.stage().sample != config::SampleKind::texts) return true;
  const std::vector<std::int64_t> offsets = set.pack->item_offsets();
  const ItemCount longer(*set.pack, set.items, [&](std::int64_t number) {
    const auto i = static_cast<std::size_t>(number);
    return offsets.at(i + 1) - offsets.at(i) > 1;
  });
  return longer.count > 0;
}

void require_labels(const EvalSet& set, const config::RunConfig& config, comm::Communicator& comm) {
  if (config.stage().classifies() || config.stage().limits != nullptr) check_items(*set.pack, set.items, config, comm);
}

fs::path pack_path(const config::RunConfig& config, CorpusPart part) {
  const std::string& given = part == CorpusPart::train ? config.data.pack : config.data.eval_pack;
  return given.empty() ? own_pack(config, part) : fs::path(given);
}

std::unique_ptr<loader::EvalLoader> EvalSet::loader(const config::RunConfig& config, const comm::Communicator& comm) const {
  const loader::LoaderOptions options = loader::loader_options(config);
  std::optional<config::ItemLimits> limits = options.limits;
  if (limits && whole_items) limits = config::ItemLimits{limits->sample};
  const comm::Place data = data_place(config, comm);
  return std::make_unique<loader::EvalLoader>(pack, items, config.training.per_device_eval_batch_size, data.rank, data.size,
                                              /*max_items=*/0, options.share_prompts,
                                              loader::make_choice(*pack, limits, options.seed));
}

std::vector<std::pair<std::string, EvalSet>> EvalSet::by_dataset() const {
  const auto& sources = pack->attributes().sources;
  const std::vector<std::int32_t> dataset_of = pack->item_datasets();
  std::vector<std::vector<std::int64_t>> parts(sources.size());
  const auto all = items ? items->size() : dataset_of.size();
  for (std::size_t i = 0; i < all; ++i) {
    const std::int64_t item = items ? (*items)[i] : static_cast<std::int64_t>(i);
    const std::string& name = sources[static_cast<std::size_t>(dataset_of[static_cast<std::size_t>(item)])].name;
    const auto first = std::ranges::find(sources, name, &pack::PackSource::name);  // a dataset may be named twice
    parts[static_cast<std::size_t>(first - sources.begin())].push_back(item);
  }
  std::vector<std::pair<std::string, EvalSet>> sets;
  for (std::size_t s = 0; s < sources.size(); ++s)
    if (!parts[s].empty())
      sets.emplace_back(sources[s].name,
                        EvalSet{pack, std::make_shared<const std::vector<std::int64_t>>(std::move(parts[s])), whole_items});
  return sets;
}

std::unique_ptr<loader::Loader> TrainingData::loader(const config::RunConfig& config, const comm::Communicator& comm) const {
  const comm::Place data = data_place(config, comm);
  return std::make_unique<loader::Loader>(pack, options_of(config, *pack, items, comm.rank() == 0), data.rank, data.size);
}

std::optional<PlannedData> planned_data(const config::RunConfig& config, int data_ranks) {
  fs::path path = config.folder_of(config.data.pack);
  if (path.empty() && !config.training.output_dir.empty()) path = own_pack(config, CorpusPart::train);
  if (path.empty() || (config.data.pack.empty() && !fs::exists(path))) return std::nullopt;
  PlannedData d{pack::PackReader::open(path), nullptr, nullptr};
  const auto items = learnable(*d.pack, split(config, *d.pack).first, /*warns=*/true);
  const loader::LoaderOptions options = options_of(config, *d.pack, items, true);
  d.choice = loader::make_choice(*d.pack, options.limits, options.seed);
  d.schedule = std::make_unique<loader::StepSchedule>(d.choice ? d.choice->most_tokens() : d.pack->item_tokens(),
                                                      d.pack->item_labels(), options, data_ranks);
  return d;
}

TrainingData open_training_data(const config::RunConfig& config, const model::ModelConfig& model, comm::Communicator& comm,
                                MissingPacks missing, const pack::BeforePacking& before) {
  TrainingData d;
  if (config.data.use_curriculum) loader::parse_curriculum(config.data.curriculum);  // reports its mistakes before packing
  NewPacks packs(comm.rank() == 0);
  const auto open = [&](const std::string& given, CorpusPart part, const pack::BeforePacking& first) {
    return packs.watched(own_pack(config, part), first, [&](const pack::BeforePacking& noted) {
      return open_pack(config, model, comm, config.folder_of(given), part, missing, noted);
    });
  };
  auto [pack, tokenizer] = open(config.data.pack, CorpusPart::train, before);
  d.pack = std::move(pack);
  if (d.pack) {
    auto [train, eval] = split(config, *d.pack);
    if (eval) d.eval = EvalSet{.pack = d.pack, .items = std::move(eval)};
    d.items = learnable(*d.pack, std::move(train), comm.rank() == 0);
    warn_of_long(*d.pack, d.items, model, comm);
    check_items(*d.pack, d.items, config, comm);
    packs.keep();  // keep this pack even if the other one is refused
  }
  if (has_eval_source(config)) d.eval = EvalSet{.pack = open(config.data.eval_pack, CorpusPart::eval, {}).pack, .items = nullptr};
  if (!d.pack || (d.eval && !d.eval->pack)) return d;
  if (d.eval) d.eval = learnable(std::move(*d.eval), comm);
  if (d.eval) require_labels(*d.eval, config, comm);
  if (comm.rank() == 0) d.first_sample = pack::sample_lines(*d.pack, d.items ? d.items->front() : 0, *tokenizer);
  packs.keep();
  return d;
}

EvalSet open_eval_data(const config::RunConfig& config, const model::ModelConfig& model, comm::Communicator& comm,
                       MissingPacks missing) {
  std::optional<job::OutputDir> hold;  // held while a pack is made there: a run may be active
  const auto before = [&](const pack::PackAttributes&, comm::Communicator& packing) {
    if (missing == MissingPacks::make) hold.emplace(config.training.output_dir, packing, "qft eval");
  };
  const bool own = has_eval_source(config);
  const auto pack = open_pack(config, model, comm, config.folder_of(own ? config.data.eval_pack : config.data.pack),
                              own ? CorpusPart::eval : CorpusPart::train, missing, before)
                        .pack;
  if (!pack) return {};
  const EvalSet set = learnable(EvalSet{.pack = pack, .items = split(config, *pack).second},
                                comm);  // no split if there is a separate evaluation set
  warn_of_long(*set.pack, set.items, model, comm);
  return set;
}

}  // namespace qft::engine
