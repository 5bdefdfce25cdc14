// From a configuration to loaders: the packs are given, found unchanged, or made first, in parallel, by all ranks.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/loader/loader.h"
#include "qft/model/config.h"
#include "qft/pack/preprocess.h"
#include "qft/pack/reader.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qft::engine {

/// What evaluation runs over: all of a pack, or the validation part of the training pack.
struct EvalSet {
  std::shared_ptr<const pack::PackReader> pack;
  loader::ItemSubset items;

  std::unique_ptr<loader::EvalLoader> loader(const config::RunConfig& config, const comm::Communicator& comm) const;
  /// Its parts by the datasets that they are from, in the order of the pack's sources; none without items.
  std::vector<std::pair<std::string, EvalSet>> by_dataset() const;
};

struct TrainingData {
  std::shared_ptr<const pack::PackReader> pack;
  loader::ItemSubset items;  ///< null: all
  std::optional<EvalSet> eval;
  std::vector<std::string> first_sample;  ///< lines that show what the first one reads and learns; on rank 0

  std::unique_ptr<loader::Loader> loader(const config::RunConfig& config, const comm::Communicator& comm) const;
};

/// Where this run's pack of `part` lies, or will lie, as rank 0 sees it; not its copy on a node's own disk.
std::filesystem::path pack_place(const config::RunConfig& config, pack::CorpusPart part);

/// What becomes of a pack that is not given, or not made of these inputs.
enum class MissingPacks { make, leave };

/// Opens (or first makes) the packs that training needs and checks them against tokenizer, template, cutoff_len and the
/// model's vocabulary. With MissingPacks::leave nothing is written: where a pack would be made its datasets are looked at
/// (pack::look_at_datasets), and `pack` (or eval's) is null. `before` is called where the training pack is not made of these
/// inputs. Collective.
TrainingData open_training_data(const config::RunConfig& config, const model::ModelConfig& model, comm::Communicator& comm,
                                MissingPacks missing = MissingPacks::make, const pack::BeforePacking& before = {});

/// Whether all items of a set of stage seq_cls have labels.
bool has_labels(const EvalSet& set);
/// Throws ConfigError, on all ranks, where the run trains a classifier and an item has no label that fits it. Collective.
void require_labels(const EvalSet& set, const config::RunConfig& config, comm::Communicator& comm);

/// The steps that training will take.
struct PlannedData {
  std::shared_ptr<const pack::PackReader> pack;
  std::unique_ptr<loader::StepSchedule> schedule;
};

/// Of the pack that is given, or that an earlier run made of the same data; nothing where there is none yet. Needs no
/// tokenizer and checks nothing against one. Not collective.
std::optional<PlannedData> planned_data(const config::RunConfig& config, int ranks);

/// What `qft eval` runs over: eval_pack or eval_dataset; else the validation split; else the whole training data.
/// Collective.
EvalSet open_eval_data(const config::RunConfig& config, const model::ModelConfig& model, comm::Communicator& comm,
                       MissingPacks missing = MissingPacks::make);

}  // namespace qft::engine
