// The grid: layouts of the ranks, crossed with models and tasks, each compared with one rank in fp64. A layout, a model and a
// task is a row of a table in grid_rows.cpp; a new axis of the mesh is a member of LayoutRow.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/engine/step_inputs.h"
#include "qft/loader/loader.h"
#include "qft/parallel/step_result.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qft::parallel::grid {

/// How the ranks share a run. One degree may be 0: it takes the remaining ranks.
struct LayoutRow {
  std::string_view strategy;
  comm::Degrees degrees;
};

/// How each rank computes and what it keeps.
struct WayRow {
  std::string_view name;
  bool recompute = false;
  Offload offload = {};
  int group = 1;                      ///< micro-batches per acquire
  std::int64_t prefetch_budget = 1;   ///< bytes
  std::int64_t micro_batch_size = 1;  ///< items, or packed rows; if it exceeds a step's items, one rank alone has work
};

struct ModelRow {
  std::string_view name;
  std::string_view config;  ///< config.json
  std::string_view tensor;  ///< how many ranks can share its matrices: "2 3"
  bool experts = false, classifies = true;
  /// Its matrices are large, and ranks can share them in 4 bits, which have 64 numbers in a block.
  bool in_blocks = false;
};

struct TaskRow {
  std::string_view name;
  std::string_view keys;    ///< of the run file
  bool of_experts = true;   ///< models with experts have it too
  bool classifies = false;  ///< needs a model that can classify
  bool quantized = false;
  bool large = false;  ///< its optimizer keeps codes of matrices of 4096 elements or more
};

std::span<const ModelRow> models();
std::span<const TaskRow> tasks();

struct Case {
  const LayoutRow* layout = nullptr;
  const WayRow* way = nullptr;
  const ModelRow* model = nullptr;
  const TaskRow* task = nullptr;
};
std::string name_of(const Case& c);

/// A case, and one with the same model and task that continues from its checkpoint.
struct Entry {
  Case first, second;
};

/// Returns this number of ranks' part of a list that covers each pair of rows of two tables, over the numbers of ranks that ctest
/// starts: each case runs on one of them. With `all` every case of the list that suits the ranks.
std::vector<Entry> entries(int ranks, bool all);

/// Files that all runs of the grid share, in a folder that every rank sees.
class Files {
 public:
  /// Collective over `world`. The folder is the one that QFT_GRID_FILES names, whose models, packs and oracles are used again;
  /// else it lives as long as rank 0's object.
  explicit Files(comm::Communicator& world);
  /// The same folder for the ranks of `comm` alone.
  Files(comm::Communicator& comm, const Files& others);
  ~Files();
  /// Returns the model's folder: config.json and weights in fp32 that depend on their names alone. Made at the first call, which
  /// is collective.
  std::filesystem::path model(const ModelRow& row);
  /// Returns a pack of the stage's kind of items. Made at the first call, which is collective.
  std::filesystem::path pack(const config::Stage& stage);
  /// Returns the file of one rank's result.
  std::filesystem::path oracle(const ModelRow& model, const TaskRow& task) const;
  /// Returns an empty folder, the same on all ranks. Collective.
  std::filesystem::path empty_folder();

 private:
  struct Folder;
  std::unique_ptr<Folder> folder_;
  comm::Communicator& world_;
  std::filesystem::path root_;
  int folders_ = 0;
};

/// A step's results, the same on all ranks.
struct StepNumbers {
  double loss = 0.0, norm = 0.0;
  std::map<std::string, double> metrics = {};
  std::vector<double> grads = {};  ///< every trainable tensor, whole, one after the other
};

/// One rank's result, with which all layouts are compared.
struct Oracle {
  std::vector<StepNumbers> steps;
  std::vector<double> weights;               ///< after the steps, as StepNumbers::grads
  std::map<std::string, std::string> files;  ///< by path: the bytes of the saved model or adapter
};

inline constexpr int kSteps = 2, kItems = 7;  ///< items of a step, which sees all of a pack's

/// A run of a case on the ranks of `comm`, which must outlive it. All functions are collective.
class Run {
 public:
  Run(const Case& c, comm::Communicator& comm, Files& files, c10::Device device);
  ~Run();
  StepNumbers step();
  /// Continues after `steps` steps.
  void seek(std::int64_t steps) { loader_->seek(steps), next_ = steps; }
  std::vector<double> weights();
  void set_weights(const std::vector<double>& weights);
  /// Saves the model or adapter into `folder`, as training does at its end.
  void save(const std::filesystem::path& folder);
  /// Writes a checkpoint below `folder`; returns its path.
  std::filesystem::path save_checkpoint(const std::filesystem::path& folder);
  void load_checkpoint(const std::filesystem::path& checkpoint);
  /// Returns the trainable tensors in the order of StepNumbers::grads: name and number of elements.
  std::vector<std::pair<std::string, std::int64_t>> tensors() const;

 private:
  using PartOf = std::function<model::Shard(int unit, const model::ParamSpec& param)>;
  std::vector<double> whole(const PartOf& part_of) const;

  comm::Communicator& comm_;
  config::RunConfig config_;
  engine::SourceState sources_;
  std::unique_ptr<engine::Instance> instance_;
  std::unique_ptr<loader::Loader> loader_;
  std::int64_t next_ = 0;
};

/// Returns the files of a folder by path.
std::map<std::string, std::string> read_files(const std::filesystem::path& folder);

/// Runs each model and task of `list` on one rank that keeps everything, one item at a time; the ranks of `world` share the
/// work. By names of model and task. Collective.
std::map<std::pair<std::string_view, std::string_view>, Oracle> oracles(const std::vector<Entry>& list, comm::Communicator& world,
                                                                        Files& files);

}  // namespace qft::parallel::grid
