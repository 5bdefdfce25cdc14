// The training loop.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/run_config.h"
#include "qft/core/progress.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/instance.h"
#include "qft/engine/reference.h"
#include "qft/job/output_dir.h"
#include "qft/job/time_limit.h"
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

/// One run from a configuration to its results. Collective in all its calls.
class Trainer {
 public:
  /// Opens data, model and output directory, and resumes where there is something to resume. Rank 0 calls `accepted` once
  /// output_dir is the run's, before the data are packed: it may put packs there.
  Trainer(config::RunConfig config, comm::Session& session, c10::Device device, const std::function<void()>& accepted = {});
  ~Trainer();

  /// Trains to the end, or to a request to stop. Returns an exit code: 0; 1 if every update was skipped; or 75 after a committed
  /// checkpoint.
  int run();

 private:
  engine::References stored_references(c10::Device device, const std::function<void()>& leave);
  bool was_finished();
  int train();
  void begin_watching();
  loader::StepBatch next_batch();
  parallel::StepResult step(const loader::StepBatch& batch);
  void warn_skipped(const std::string& objection, double scale) const;
  void after_step(const loader::StepBatch& batch, const parallel::StepResult& result);
  void write_log(const loader::StepBatch& batch, const parallel::StepResult& result);
  void evaluate(double epoch);
  void save(double epoch, double loss);
  void note(const std::optional<Saved>& saved);
  /// True once early_stopping_steps evaluations in a row were no better.
  bool gives_up() const { return progression_.best.gives_up(config_.finetuning.early_stopping_steps); }
  void forget_other_best();
  void restore_best();
  void restore_scores(const BestModel& best);
  void report_memory();
  void require_output();
  void finish(double epoch);
  void predict();
  void write_results(double epoch);
  /// Says in the last line if updates were skipped. The exit code: failed if none was kept.
  int verdict() const;
  bool asked_to_stop(bool step_done) const;
  int stop(double epoch, double loss);
  std::int64_t interval(double steps) const;
  bool is_root() const { return comm_.rank() == 0; }

  config::RunConfig config_;
  comm::Session& session_;
  comm::Communicator& comm_;
  job::OutputDir output_;  ///< before all that writes there
  engine::References references_;
  std::unique_ptr<engine::Instance> instance_;
  engine::TrainingData data_;
  std::unique_ptr<loader::Loader> loader_;
  optim::Schedule schedule_;
  optim::LossScaler scaler_;
  Progression progression_;
  engine::RunningReward next_reward_;  ///< progression's, once the step at hand is done
  checkpoint::RunRecord run_;          ///< rank 0's
  double epoch_ = 0.0;                 ///< at the last step that was done
  bool same_settings_ = false;         ///< as in the checkpoint that this run resumes from
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<RunLog> log_;                  ///< rank 0's
  std::unique_ptr<Watching> watching_;           ///< rank 0's, from run() on
  std::unique_ptr<ProgressFile> progress_file_;  ///< rank 0's, until run() is over; gone before watching_ looks at the end
  std::unique_ptr<StepTrace> trace_;             ///< null: the run file does not ask for a trace
  std::unique_ptr<track::MachineUse> machine_;   ///< of a node's first rank
  std::unique_ptr<Progress> bar_;

  /// What has been done since the last log line.
  struct SinceLog {
    std::int64_t tokens = 0;
    double started = 0.0;
    PhaseSeconds phases;
  } since_log_;
  job::TimeLimit limit_;
  double start_ = 0.0;                                             ///< of this process' part of the run, on the steady clock
  double step_seconds_ = std::numeric_limits<double>::infinity();  ///< of the last step; the first may take long
  double last_learning_rate_ = 0.0;
  bool warned_of_collapse_ = false;
  bool stopping_ = false;  ///< a rank has asked for an end after this step
  std::int64_t last_saved_ = -1, last_evaluated_ = -1;
  std::filesystem::path last_checkpoint_;  ///< committed, or resumed from
  bool last_has_state_ = true;             ///< a run can resume from the last checkpoint
  std::map<std::string, double> memory_;   ///< what report_memory() found, for the results
  std::string metric_;                     ///< the name in eval_ that decides which model is best; empty: none
  std::map<std::string, double> eval_;     ///< eval::eval_values() of the weights as they are; empty: not known
};

}  // namespace qft::train
