#include "qft/train/snapshot.h"

#include <algorithm>
#include <set>
#include <string>

#include "qft/core/error.h"
#include "qft/train/batch_job.h"

#include "save_memory.h"

namespace qft::train {
namespace {

namespace fs = std::filesystem;

/// The tensors of a training state: name in the checkpoint, and this rank's slice (which may be empty).
struct StateTensor {
  std::string name;
  const model::ParamSpec* param;
  model::ParamSlice slice;
};

/// Names in the checkpoint of a parameter's master and of what the optimizer's rule keeps of it, in this order.
std::vector<std::string> state_names(const optim::RuleSpec& rule, const model::ParamSpec& p) {
  std::vector<std::string> names{"master." + p.name};
  for (const std::string_view state : rule.state) names.push_back(fmt::format("{}.{}", state, p.name));
  return names;
}

std::vector<StateTensor> state_tensors(parallel::Instance& instance) {
  std::vector<StateTensor> list;
  const optim::RuleSpec& rule = instance.optimizer()->rule();
  for (int u = 0; u < instance.spec().num_units(); ++u)
    for (const auto& p : instance.spec().units[static_cast<std::size_t>(u)].params) {
      if (!p.trainable) continue;
      const auto names = state_names(rule, p);
      list.push_back({names[0], &p, instance.param(u, p)});
      for (std::size_t s = 0; s < rule.state.size(); ++s) list.push_back({names[s + 1], &p, instance.state(u, p, s)});
    }
  return list;
}

/// Elements [begin, end) of the parameter, which lie in the rank's slice.
template <class Slice>
Slice slice_of(const StateTensor& t, std::int64_t begin, std::int64_t end) {
  Slice s;
  s.name = t.name;
  s.dtype = model::dtype_of(t.slice.values.scalar_type());
  s.shape = t.param->shape;
  s.begin = static_cast<std::uint64_t>(begin);
  s.end = static_cast<std::uint64_t>(end);
  return s;
}

}  // namespace

nlohmann::json to_json(const Progression& p) {
  return {{"step", p.step},
          {"guard", to_json(p.guard)},
          {"total_tokens", p.total_tokens},
          {"label_tokens", p.label_tokens},
          {"elapsed_seconds", p.elapsed_seconds},
          {"loss_sum", p.loss_sum},
          {"best", to_json(p.best)}};
}

Progression progression_from_json(const nlohmann::json& json) {
  Progression p;
  p.step = json.at("step").get<std::int64_t>();
  p.guard = guard_from_json(json.at("guard"));
  p.total_tokens = json.at("total_tokens").get<std::int64_t>();
  p.label_tokens = json.at("label_tokens").get<std::int64_t>();
  p.elapsed_seconds = json.at("elapsed_seconds").get<double>();
  p.loss_sum = json.at("loss_sum").get<double>();
  p.best = best_from_json(json.at("best"));
  return p;
}

SnapshotSave::SnapshotSave(const config::RunConfig& config, parallel::Instance& instance, comm::Communicator& comm,
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
  if (comm.rank() == 0) state_["job"] = this_job().job, state_["job_restarts"] = this_job().restarts ? nlohmann::json(*this_job().restarts) : nlohmann::json();
  const auto& t = config.training;
  const Writers who{comm, comm.size()};
  if (comm.rank() == 0)
    trainer_state_ = log->trainer_state({info.progression.step, info.total_steps, info.epoch, t.num_train_epochs,
                                         t.per_device_train_batch_size, info.progression.best});
  if (!t.save_only_model || info.stopped) take_memory(comm, "the copy of masters and optimizer state", [&] { stage_state(instance, staged); });
  if (staged) {
    write_model_ = stage_model(config, instance, who);
    thread_ = std::thread([this] { write_files(); });
  } else {
    write_model_ = [&](io::Storage& storage, const fs::path& dir) { return save_model(config, instance, storage, dir, who); };
    write_files();
  }
}

SnapshotSave::~SnapshotSave() {
  if (thread_.joinable()) thread_.join();
}

// Each rank writes what it owns; ranks that own the same write equal shares of it.
void SnapshotSave::stage_state(parallel::Instance& instance, bool copy) {
  const comm::Communicator& owners = instance.layout().replicate();
  for (const StateTensor& t : state_tensors(instance)) {
    const std::int64_t length = t.slice.values.numel();
    const std::int64_t begin = length * owners.rank() / owners.size(), end = length * (owners.rank() + 1) / owners.size();
    if (begin == end) continue;
    const at::Tensor mine = t.slice.values.narrow(0, begin, end - begin);
    values_.push_back(mine.is_cpu() && copy ? mine.clone() : mine.to(at::kCPU));
    auto slice = slice_of<checkpoint::SourceSlice>(t, t.slice.begin + begin, t.slice.begin + end);
    slice.data = values_.back().data_ptr();
    slices_.push_back(std::move(slice));
  }
}

void SnapshotSave::write_files() {
  writer_.write_slices(slices_);
  slices_.clear();
  values_.clear();
  writer_.add_files([this](io::Storage& storage, const fs::path& dir) { return write_model_(storage, dir); });
  write_model_ = {};
  if (!trainer_state_.empty())
    writer_.add_file("trainer_state.json", [this](io::Storage& storage, const fs::path& path) {
      io::write_file(storage, path, trainer_state_);
    });
  written_ = true;
}

fs::path SnapshotSave::commit() {
  if (thread_.joinable()) thread_.join();
  return writer_.commit(state_);
}

void require_same_tensors(const checkpoint::SharedCheckpoint& saved, const optim::RuleSpec& rule, const model::ModelSpec& spec) {
  const auto& theirs = saved.manifest().tensors;
  if (theirs.empty())
    fail_config("'{}' holds weights but no optimizer state (save_only_model): to train on from its adapter give it as "
                "adapter_name_or_path", saved.dir().string());
  std::set<std::string> ours;
  for (const auto& unit : spec.units)
    for (const auto& p : unit.params)
      if (p.trainable)
        for (auto& name : state_names(rule, p)) ours.insert(std::move(name));
  for (const auto& tensor : theirs)
    if (ours.count(tensor.name) == 0)
      fail_config("'{}' holds '{}', which this run does not train: resume with the lora_target and finetuning_type that wrote it, "
                  "or start a new run", saved.dir().string(), tensor.name);
}

void load_snapshot(const checkpoint::SharedCheckpoint& saved, parallel::Instance& instance) {
  require_same_tensors(saved, instance.optimizer()->rule(), instance.spec());
  auto tensors = state_tensors(instance);
  std::vector<checkpoint::TargetSlice> targets;
  std::vector<at::Tensor> staged;
  for (const StateTensor& t : tensors) {
    const at::Tensor& values = t.slice.values;
    staged.push_back(values.is_cpu() ? values : values.to(at::kCPU));
    if (values.numel() == 0) continue;
    auto slice = slice_of<checkpoint::TargetSlice>(t, t.slice.begin, t.slice.end());
    slice.data = staged.back().data_ptr();
    targets.push_back(std::move(slice));
  }
  saved.read(targets);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].slice.values.is_cpu()) tensors[i].slice.values.copy_(staged[i]);
  instance.optimizer()->set_steps(saved.state().at("optimizer_steps").get<std::int64_t>());
  instance.publish();
}

}  // namespace qft::train
