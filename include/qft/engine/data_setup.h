// Opens the packs that a run file asks for. If no matching pack exists, all ranks make it first, in parallel.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/loader/loader.h"
#include "qft/model/config.h"
#include "qft/pack/preprocess.h"
#include "qft/pack/reader.h"
#include "qft/parallel/groups.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qft::engine {

/// Returns this rank's place among the data ranks of `comm`, all ranks of the run: the place in parallel::Groups::data(), before
/// there is a layout.
comm::Place data_place(const config::RunConfig& config, const comm::Communicator& comm);

/// The items that evaluation scores: a whole pack, or the validation part of the training pack.
struct EvalSet {
  std::shared_ptr<const pack::PackReader> pack;
  loader::ItemSubset items = {};  ///< null: all
  bool whole_items = false;       ///< all sequences of an item take part, whatever the stage's limits

  /// Divides the items among the data ranks of `comm`.
  std::unique_ptr<loader::EvalLoader> loader(const config::RunConfig& config, const comm::Communicator& comm) const;
  /// Splits the items by dataset, in the order of the pack's sources. Empty if there are no items.
  std::vector<std::pair<std::string, EvalSet>> by_dataset() const;
};

/// The training pack with its split and, if the run evaluates, the evaluation set.
struct TrainingData {
  std::shared_ptr<const pack::PackReader> pack;
  loader::ItemSubset items;  ///< null: all
  std::optional<EvalSet> eval;
  std::vector<std::string> first_sample;  ///< printable lines: text and labels of the first sample; rank 0 only

  /// Divides the steps among the data ranks of `comm`.
  std::unique_ptr<loader::Loader> loader(const config::RunConfig& config, const comm::Communicator& comm) const;
};

/// Returns the path of this run's pack of `part`, existing or not, as rank 0 sees it (not a copy on a node-local disk).
std::filesystem::path pack_path(const config::RunConfig& config, pack::CorpusPart part);

/// What to do if no pack is given and no pack of these inputs exists: make it, or leave it.
enum class MissingPacks { make, leave };

/// Opens (or first makes) the packs that training needs. Checks them against tokenizer, template, cutoff_len and the model's
/// vocabulary. With MissingPacks::leave nothing is written: if a pack is missing, pack::preview_datasets reads its datasets, and
/// `pack` (or that of `eval`) is null. Calls `before` if the training pack does not match these inputs. Collective.
TrainingData open_training_data(const config::RunConfig& config, const model::ModelConfig& model, comm::Communicator& comm,
                                MissingPacks missing = MissingPacks::make, const pack::BeforePacking& before = {});

/// True if all items of a seq_cls set have labels.
bool has_labels(const EvalSet& set);
/// False if all items of a set for stage embedding are anchors alone; true in other stages.
bool has_documents(const EvalSet& set, const config::RunConfig& config);
/// If the run trains a classifier, an embedding model or a reranker, throws ConfigError on all ranks when an item has no valid
/// label. Collective.
void require_labels(const EvalSet& set, const config::RunConfig& config, comm::Communicator& comm);

/// The training pack and the steps that training will take.
struct PlannedData {
  std::shared_ptr<const pack::PackReader> pack;
  std::shared_ptr<const loader::ItemChoice> choice;  ///< null: all sequences take part
  std::unique_ptr<loader::StepSchedule> schedule;
};

/// Returns the plan of `data_ranks` data ranks for the given pack, or for the pack that an earlier run made in output_dir;
/// nullopt if there is none yet. Needs no tokenizer and does not check the pack against one. Not collective.
std::optional<PlannedData> planned_data(const config::RunConfig& config, int data_ranks);

/// Opens the set that `qft eval` scores: eval_pack or eval_dataset, else the validation split, else the whole training data.
/// Collective.
EvalSet open_eval_data(const config::RunConfig& config, const model::ModelConfig& model, comm::Communicator& comm,
                       MissingPacks missing = MissingPacks::make);

}  // namespace qft::engine
