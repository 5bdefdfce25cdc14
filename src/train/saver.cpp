#include "qft/train/saver.h"

#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/core/clock.h"
#include "qft/core/trace.h"
#include "qft/core/units.h"
#include "qft/device/memory.h"
#include "qft/parallel/out_of_memory.h"

#include <utility>

#include <fmt/format.h>

namespace qft::train {

Saver::Saver(const config::RunConfig& config, engine::Instance& instance, comm::Communicator& comm)
    : config_(config), instance_(instance), comm_(comm.host().split(0, comm.rank(), "save")) {}

std::optional<Saved> Saver::start(const SnapshotInfo& info, const RunLog* log) {
  const activity::Phase phase("save");
  const trace::Scope scope(trace::kMainThread, "start a checkpoint");
  const std::optional<Saved> before = finish();
  started_ = steady_seconds();
  // A run that ends here waits for the save anyway. So it makes no copy, for which save_only_model has no planned memory.
  save_ = std::make_unique<SnapshotSave>(config_, instance_, *comm_, info, log, config_.training.async_save && !info.stopped);
  save_stall_ = steady_seconds() - started_;
  return before;
}

std::optional<Saved> Saver::poll() {
  if (!save_) return std::nullopt;
  const double began = steady_seconds();
  std::int32_t written = save_->written() ? 1 : 0;
  comm_->all_reduce(&written, 1, DType::i32, comm::ReduceOp::min);
  if (written != 0) return commit(began);
  save_stall_ += steady_seconds() - began;
  return std::nullopt;
}

std::optional<Saved> Saver::finish() {
  if (!save_) return std::nullopt;
  return commit(steady_seconds());
}

Saved Saver::commit(double stalled_since) {
  const activity::Phase phase("save");
  const trace::Scope scope(trace::kMainThread, "commit a checkpoint");
  const auto save = std::move(save_);  // reset even if commit() throws
  Saved saved;
  saved.dir = save->commit();
  saved.seconds = steady_seconds() - started_;
  saved.stall_seconds = save_stall_ + steady_seconds() - stalled_since;
  total_stall_ += saved.stall_seconds;
  return saved;
}

double Saver::take_stall() {
  return std::exchange(total_stall_, 0.0);
}

void take_memory(comm::Communicator& comm, c10::Device device, const std::string& what, const std::function<void()>& take) {
  const auto held = [] { return format_bytes(static_cast<double>(device::host_memory().current)) + " of host memory in total"; };
  comm::agreed(comm, [&] {
    parallel::explain_out_of_memory(
        take, [&] { return what; }, held,
        fmt::format("{}fewer ranks on each node; more ranks, on more nodes, with strategy zero3",
                    device.is_cpu() ? "async_save: false, which saves without a copy; " : ""));
  });
}

}  // namespace qft::train
