#include "qft/train/snapshot.h"

#include "qft/core/error.h"
#include "qft/core/thread.h"
#include "qft/core/trace.h"
#include "qft/device/scalar_type.h"
#include "qft/device/staged_copy.h"
#include "qft/job/batch_job.h"
#include "qft/parallel/optimizer_param.h"
#include "qft/train/saver.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include <ATen/ops/empty_like.h>

namespace qft::train {
namespace {

namespace fs = std::filesystem;

/// This rank's part of a box of a tensor of the training state; may be empty.
struct HeldState {
  checkpoint::TensorSlice slice;
  at::Tensor values;
  bool to_save = true;
  int unit = 0;
  std::int64_t shared = 0;  ///< another rank saves this many of the first elements
};

/// Names in the checkpoint of a parameter's master and of its optimizer state.
std::string master_name(const model::ParamSpec& p) {
  return "master." + p.name;
}
std::string state_name(const optim::StateSpec& state, const model::ParamSpec& p) {
  return fmt::format("{}.{}", state.name, p.name);
}

/// Appends this rank's part of a tensor, which lies in `boxes` of a tensor of this shape: one HeldState for each box. A part
/// without elements is one too, so that ranks take part in reading alike.
void append_parts(std::vector<HeldState>& list, const HeldState& all, const std::vector<Box>& boxes, std::int64_t begin) {
  const auto first = static_cast<std::uint64_t>(begin);
  const auto slices = checkpoint::slices_in_boxes(all.slice.name, all.slice.dtype, all.slice.shape,
                                                  {boxes, first, first + static_cast<std::uint64_t>(all.values.numel())});
  std::int64_t next = 0;
  for (const checkpoint::TensorSlice& slice : slices) {
    HeldState& held = list.emplace_back(all);
    held.slice = slice;
    held.values = all.values.narrow(0, next, static_cast<std::int64_t>(slice.end - slice.begin));
    held.shared = std::max<std::int64_t>(0, all.shared - next);  // of the first elements of all boxes together
    next += held.values.numel();
  }
  if (slices.empty()) list.push_back(all);
}

void append_master(std::vector<HeldState>& list, const model::ParamSpec& p, const model::Shard& shard, int unit) {
  const HeldState all{
      {master_name(p), device::dtype_of(shard.values.scalar_type()), p.shape, {}}, shard.values, p.first_holder, unit};
  append_parts(list, all, p.boxes, shard.begin);
}

/// The owner of a state that belongs to the whole tensor has and saves all of it.
void append_state(std::vector<HeldState>& list, const model::ParamSpec& p, const optim::HeldState& state, int unit) {
  const bool by_owner = state.spec.block_size == 0;
  const HeldState all{{state_name(state.spec, p), device::dtype_of(state.spec.type), state.spec.shape, {}},
                      state.values,
                      by_owner || p.first_holder,
                      unit,
                      state.shared};
  append_parts(list, all, state.spec.boxes_of(p.shape, p.boxes), state.begin);
}

std::vector<HeldState> held_states(engine::Instance& instance) {
  instance.settle();
  std::vector<HeldState> list;
  for (int u = 0; u < instance.spec().num_units(); ++u)
    for (const auto& p : instance.spec().units[static_cast<std::size_t>(u)].params) {
      if (!p.trainable) continue;
      append_master(list, p, instance.param(u, p), u);
      for (const optim::HeldState& state : instance.states(u, p)) append_state(list, p, state, u);
    }
  return list;
}

}  // namespace

nlohmann::json to_json(const Progression& p) {
  nlohmann::json json = {{"step", p.step},
                         {"guard", to_json(p.guard)},
                         {"total_tokens", p.total_tokens},
                         {"label_tokens", p.label_tokens},
                         {"elapsed_seconds", p.elapsed_seconds},
                         {"exchange_seconds", p.exchange_seconds},
                         {"loss_sum", p.loss_sum},
                         {"finite_steps", p.finite_steps},
                         {"best", to_json(p.best)}};
  engine::write_state(p.sources, json);
  return json;
}

Progression progression_from_json(const nlohmann::json& json) {
  Progression p;
  p.step = json.at("step").get<std::int64_t>();
  p.guard = guard_from_json(json.at("guard"));
  p.total_tokens = json.at("total_tokens").get<std::int64_t>();
  p.label_tokens = json.at("label_tokens").get<std::int64_t>();
  p.elapsed_seconds = json.at("elapsed_seconds").get<double>();
  p.exchange_seconds = json.value("exchange_seconds", 0.0);  // absent in older checkpoints
  p.loss_sum = json.at("loss_sum").get<double>();
  p.finite_steps = json.value("finite_steps", p.step);  // absent in older checkpoints
  p.sources = engine::source_state_from_json(json);
  p.best = best_from_json(json.at("best"));
  return p;
}

SnapshotSave::SnapshotSave(const config::RunConfig& config, engine::Instance& instance, comm::Communicator& comm,
                           const SnapshotInfo& info, const RunLog* log, bool staged)
    : writer_(comm, io::posix_storage(),
              {config.training.output_dir, info.progression.step, config.training.save_total_limit,
               info.progression.best.checkpoint, info.run, info.lock}),
      state_({{"progression", to_json(info.progression)},
              {"epoch", info.epoch},
              {"loss", info.loss},
              {"data", info.data_position},
              {"loss_scaler", info.loss_scaler},
              {"global_batch_size", info.global_batch_size},
              {"strategy", std::string(instance.layout().strategy().name)},
              {"model_name_or_path", config.model.model_name_or_path},
              {"optimizer_steps", instance.optimizer()->steps()},
              {"stopped", info.stopped},
              {"config", config::to_json(config)}}) {
  if (comm.rank() == 0)
    state_["job"] = job::this_job().job,
    state_["job_restarts"] = job::this_job().restarts ? nlohmann::json(*job::this_job().restarts) : nlohmann::json();
  const auto& t = config.training;
  const Writers who{comm, comm.size()};
  if (comm.rank() == 0)
    trainer_state_ = log->trainer_state({info.progression.step, info.total_steps, info.epoch, t.num_train_epochs,
                                         t.per_device_train_batch_size, info.progression.best});
  if (!t.save_only_model || info.stopped)
    take_memory(comm, instance.transformer().device(), "the copy of masters and optimizer state",
                [&] { stage_state(instance, staged); });
  if (staged) {
    write_model_ = stage_model(config, instance, who);
    thread_ = start_thread([this] { write_files("checkpoint writer"); });
  } else {
    write_model_ = [&](io::Storage& storage, const fs::path& dir) { return save_model(config, instance, storage, dir, who); };
    write_files(trace::kMainThread);
  }
}

SnapshotSave::~SnapshotSave() {
  if (thread_.joinable()) thread_.join();
}

// Each rank writes the state that it owns; ranks that own the same state write equal shares.
void SnapshotSave::stage_state(engine::Instance& instance, bool copy) {
  const comm::Communicator& owners = instance.groups().copies();
  device::StagedCopy staged(instance.transformer().device());
  for (HeldState& held : held_states(instance)) {
    const std::int64_t length = held.values.numel() - held.shared;
    const std::int64_t begin = held.shared + length * owners.rank() / owners.size(),
                       end = held.shared + length * (owners.rank() + 1) / owners.size();
    if (begin >= end || !held.to_save) continue;
    const at::Tensor mine = held.values.narrow(0, begin, end - begin);
    values_.push_back(mine.is_cpu() && copy ? mine.clone() : staged.on_host(mine, mine.scalar_type()));
    held.slice.end = held.slice.begin + static_cast<std::uint64_t>(end);
    held.slice.begin += static_cast<std::uint64_t>(begin);
    slices_.push_back({std::move(held.slice), values_.back().data_ptr()});
  }
}

void SnapshotSave::write_files(std::string_view lane) {
  const trace::Scope scope(lane, "write the checkpoint's files");
  writer_.write_slices(slices_);
  slices_.clear();
  values_.clear();
  writer_.add_files([this](io::Storage& storage, const fs::path& dir) { return write_model_(storage, dir); });
  write_model_ = {};
  if (!trainer_state_.empty())
    writer_.add_file("trainer_state.json",
                     [this](io::Storage& storage, const fs::path& path) { io::write_file(storage, path, trainer_state_); });
  written_ = true;
}

fs::path SnapshotSave::commit() {
  if (thread_.joinable()) thread_.join();
  return writer_.commit(state_);
}

void require_same_tensors(const checkpoint::SharedCheckpoint& saved, const optim::RuleSpec& rule, const optim::Hyper& hyper,
                          const model::ModelSpec& spec) {
  const auto& theirs = saved.manifest().tensors;
  if (theirs.empty())
    fail_config(
        "'{}' holds weights but no optimizer state (save_only_model): to continue from its adapter set "
        "adapter_name_or_path to it",
        saved.dir().string());
  std::set<std::string> ours;
  for (const auto& unit : spec.units)
    for (const auto& p : unit.params)
      if (p.trainable) {
        ours.insert(master_name(p));
        // Names do not depend on the types.
        for (const optim::StateSpec& state : rule.states(parallel::optimizer_param(p), hyper, {}))
          ours.insert(state_name(state, p));
      }
  for (const auto& tensor : theirs)
    if (ours.count(tensor.name) == 0)
      fail_config(
          "'{}' holds '{}', which this run does not train: resume with the same lora_target and finetuning_type, "
          "or start a new run",
          saved.dir().string(), tensor.name);
}

namespace {

/// Reads the states; state on a device goes through host memory. Collective.
void load_states(const checkpoint::SharedCheckpoint& saved, std::span<const HeldState> states, device::StagedCopy& staged) {
  std::vector<checkpoint::HostSlice> targets;
  std::vector<at::Tensor> read;
  for (const HeldState& held : states) {
    read.push_back(held.values.is_cpu() ? held.values : at::empty_like(held.values, at::TensorOptions(at::kCPU)));
    if (held.values.numel() > 0) targets.push_back({held.slice, read.back().data_ptr()});
  }
  saved.read(targets);
  for (std::size_t i = 0; i < states.size(); ++i)
    if (!states[i].values.is_cpu()) staged.to_device(states[i].values, read[i]);
}

}  // namespace

void load_snapshot(const checkpoint::SharedCheckpoint& saved, engine::Instance& instance) {
  require_same_tensors(saved, instance.optimizer()->rule(), instance.optimizer()->hyper(), instance.spec());
  const auto states = held_states(instance);
  device::StagedCopy staged(instance.transformer().device());
  // Unit by unit: the host holds at most one unit of a device's state at a time.
  for (auto begin = states.begin(); begin != states.end();) {
    const auto end = std::find_if(begin, states.end(), [&](const HeldState& held) { return held.unit != begin->unit; });
    load_states(saved, {begin, end}, staged);
    begin = end;
  }
  instance.optimizer()->set_steps(saved.state().at("optimizer_steps").get<std::int64_t>());
  instance.publish();
}

}  // namespace qft::train
