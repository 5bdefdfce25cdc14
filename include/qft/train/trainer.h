// The training loop.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/run_config.h"
#include "qft/core/progress.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/instance.h"
#include "qft/engine/reference.h"
#include "qft/job/output_dir.h"
#include "qft/job/stop_signal.h"
#include "qft/optim/loss_scaler.h"
#include "qft/optim/schedule.h"
#include "qft/track/machine_use.h"
#include "qft/train/run_log.h"
#include "qft/train/saver.h"
#include "qft/train/snapshot.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace qft::train {

class ProgressFile;
class StepTrace;
class Watching;

/// One run from its configuration to its results. All public calls are collective.
class Trainer {
 public:
  /// Opens data, model and output directory, and resumes from a checkpoint if there is one. Rank 0 calls `accepted` once
  /// output_dir belongs to the run, before the data is packed: `accepted` may put packs there.
  Trainer(config::RunConfig config, comm::Session& session, c10::Device device, const std::function<void()>& accepted = {});
  ~Trainer();

  /// Trains to the end or to a request to stop. Returns an exit code: 0; 1 if every update was skipped; 75 after a request to
  /// stop and a committed checkpoint.
  int run();

 private:
  engine::References stored_references(const engine::ModelSource& source, c10::Device device, const std::function<void()>& leave);
  bool was_finished();
  int train();
  void begin_watching();
  loader::StepBatch next_batch();
  parallel::StepResult step(const loader::StepBatch& batch);
  void warn_skipped(const std::string& objection, double scale) const;
  void after_step(const loader::StepBatch& batch, const parallel::StepResult& result);
  /// Adds the executor's seconds since the last call to those since the last log line, and to the run's.
  void take_phases();
  void write_log(const loader::StepBatch& batch, const parallel::StepResult& result);
  void evaluate(double epoch);
  void save(double epoch, double loss);
  void note(const std::optional<Saved>& saved);
  /// True after early_stopping_steps evaluations in a row without a better metric.
  bool stops_early() const { return progression_.best.stops_early(config_.finetuning.early_stopping_steps); }
  void forget_other_best();
  void restore_best();
  void restore_scores(const BestModel& best);
  void report_memory();
  void require_output();
  void finish(double epoch);
  void predict();
  void write_results(double epoch);
  /// Logs whether updates were skipped. Returns the exit code: failed if all were skipped.
  int verdict() const;
  bool stop_requested(bool step_done) const;
  int stop(double epoch, double loss);
  std::int64_t interval(double steps) const;
  bool is_root() const { return comm_.rank() == 0; }

  config::RunConfig config_;
  comm::Session& session_;
  comm::Communicator& comm_;
  job::OutputDir output_;  ///< declared before everything that writes there
  engine::References references_;
  std::unique_ptr<engine::Instance> instance_;
  engine::TrainingData data_;
  std::unique_ptr<loader::Loader> loader_;
  optim::Schedule schedule_;
  optim::LossScaler scaler_;
  Progression progression_;
  engine::SourceState next_sources_;  ///< progression_.sources after the current step
  checkpoint::RunRecord run_;         ///< rank 0's
  double epoch_ = 0.0;                ///< at the last completed step
  bool same_settings_ = false;        ///< settings equal those of the resumed checkpoint
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<RunLog> log_;                  ///< rank 0's
  std::unique_ptr<Watching> watching_;           ///< rank 0's, from run() on
  std::unique_ptr<ProgressFile> progress_file_;  ///< rank 0's, until the end of run(); removed before watching_ records the end
  std::unique_ptr<StepTrace> trace_;             ///< null unless the run file asks for a trace
  std::unique_ptr<track::MachineMonitor> machine_;  ///< on a node's first rank
  std::unique_ptr<Progress> bar_;

  /// Progress since the last log line.
  struct SinceLog {
    std::int64_t tokens = 0;
    double started = 0.0;
    PhaseSeconds phases;
  } since_log_;
  job::TimeLimit limit_;
  double start_ = 0.0;                                             ///< start of this process' part of the run, steady clock
  double step_seconds_ = std::numeric_limits<double>::infinity();  ///< duration of the last step; infinity before the first
  double last_learning_rate_ = 0.0;
  bool warned_of_collapse_ = false;
  bool stopping_ = false;  ///< a rank asked to stop after this step
  std::int64_t last_saved_ = -1, last_evaluated_ = -1;
  std::filesystem::path last_checkpoint_;  ///< committed, or resumed from
  bool last_has_state_ = true;             ///< a run can resume from the last checkpoint
  std::map<std::string, double> memory_;   ///< the values of report_memory(), for the results
  std::string metric_;                     ///< the key in eval_ that decides which model is best; empty: none
  std::map<std::string, double> eval_;     ///< eval::eval_values() of the current weights; empty: unknown
};

}  // namespace qft::train
