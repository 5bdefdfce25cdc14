#include "qft/checkpoint/restore.h"
#include "qft/comm/exchange.h"
#include "qft/engine/objectives.h"
#include "qft/engine/run_plan.h"
#include "qft/io/storage.h"
#include "qft/train/save_model.h"
#include "qft/train/snapshot.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include "config/config_files.h"
#include "grid.h"
#include "io/temp_dir.h"
#include <ATen/ops/empty.h>
#include <fmt/format.h>

namespace qft::parallel::grid {
namespace {

namespace fs = std::filesystem;

constexpr double kLearningRate = 1e-2;

config::RunConfig config_of(const Case& c, Files& files) {
  const std::string stage = config::load_text(fmt::format("model_name_or_path: x\n{}", c.task->keys)).finetuning.stage;
  return config::load_text(
      fmt::format("model_name_or_path: {}\n"
                  "pack: {}\n"
                  "per_device_train_batch_size: {}\n"
                  "global_batch_size: {}\n"
                  "template: chatml\n"
                  "cutoff_len: 32\n"
                  "seed: 7\n"
                  "moe_aux_loss_coef: 0.3\n"
                  "moe_z_loss_coef: 0.02\n"
                  "{}",
                  files.model(*c.model).string(), files.pack(config::stage_of(stage)).string(), c.way->micro_batch_size, kItems,
                  c.task->keys));
}

/// The part of a plan that depends on files, and an execution that the CPU alone would not choose.
plan::RunPlan plan_of(const Case& c, const config::RunConfig& config, const engine::ModelSource& source,
                      const comm::Communicator& comm) {
  const comm::Degrees degrees = comm::resolve(c.layout->degrees, comm.size());
  plan::RunPlan run = engine::plan_of(config, source, engine::RankShares::of(comm::Mesh(degrees, comm.rank(), comm.size())));
  run.precision = optim::Precision::fp64();
  run.hyper.weight_decay = 0.01;
  run.sharding = make_sharding(strategy_of(c.layout->strategy), c.way->offload, degrees.replicate * degrees.shard, degrees.shard);
  run.sharding.context_ranks = degrees.context;
  run.sharding.tensor_ranks = degrees.tensor;
  run.sharding.bucket_bytes = 2048;
  run.sharding.prefetch_budget = c.way->prefetch_budget;
  const bool reference = run.schedule.reference;
  run.schedule = make_schedule(run.sharding);
  run.schedule.reference = reference;
  run.schedule.group = c.way->group;
  run.schedule.recompute = c.way->recompute;
  return run;
}

/// Calls `visit` with each trainable parameter, its unit, and the place of its first element among all whole tensors.
template <class Visit>
std::int64_t for_each_trained(const model::ModelSpec& spec, const Visit& visit) {
  std::int64_t first = 0;
  for (int u = 0; u < spec.num_units(); ++u)
    for (const model::ParamSpec& p : spec.units[static_cast<std::size_t>(u)].params) {
      if (!p.trainable) continue;
      visit(u, p, first);
      first += static_cast<std::int64_t>(Box::whole(p.shape).elements());
    }
  return first;
}

/// Calls body(element of the whole tensor, element of the part, count) for the part of the parameter's boxes that a shard has.
template <class Body>
void for_each_run(const model::ParamSpec& p, const model::Shard& shard, const Body& body) {
  const Box all = Box::whole(p.shape);
  for_each_common_run(BoxesRange{p.boxes, static_cast<std::uint64_t>(shard.begin), static_cast<std::uint64_t>(shard.end())},
                      {all, 0, all.elements()}, [&](const CommonRun& run) {
                        body(static_cast<std::int64_t>(run.b), static_cast<std::int64_t>(run.a),
                             static_cast<std::int64_t>(run.count));
                      });
}

}  // namespace

Run::Run(const Case& c, comm::Communicator& comm, Files& files, c10::Device device) : comm_(comm), config_(config_of(c, files)) {
  const auto source = engine::ModelSource::read(config_, engine::Use::training);
  instance_ = engine::Instance::load(plan_of(c, config_, source, comm), source, comm, device);
  const comm::Communicator& data = instance_->groups().data();
  loader_ = std::make_unique<loader::Loader>(pack::PackReader::open(config_.data.pack), loader::loader_options(config_),
                                             data.rank(), data.size());
}

Run::~Run() = default;

StepNumbers Run::step() {
  const loader::StepBatch batch = loader_->next();
  engine::StepInputs inputs(config_, *instance_, /*reference=*/nullptr, &sources_);
  BatchTotals totals{static_cast<double>(batch.global_label_tokens), static_cast<double>(batch.global_samples),
                     static_cast<double>(batch.global_tokens)};
  inputs.fill_totals(totals, batch);
  const auto micros = inputs.inputs({batch.micro_batches, batch.max_micro_batches, batch.first_micro_batch});
  const auto list = instance_->training_list(static_cast<int>(micros.size()), static_cast<int>(batch.max_micro_batches));
  const auto objective = engine::make_objective(config_, instance_->spec().config, totals);
  const StepResult result = instance_->executor().train(list, micros, *objective, static_cast<std::uint64_t>(next_++));
  StepNumbers numbers{result.loss, result.grad_norm, result.metrics,
                      whole([&](int unit, const model::ParamSpec& p) { return instance_->grad(unit, p); })};
  instance_->update(kLearningRate, std::min(1.0, 1.0 / (result.grad_norm + 1e-6)));
  return numbers;
}

std::vector<double> Run::whole(const PartOf& part_of) const {
  const model::ModelSpec& spec = instance_->spec();
  std::vector<double> all(static_cast<std::size_t>(for_each_trained(spec, [](auto&&...) {})));
  // Each element lies on one rank of the copies; the others add zeros.
  if (instance_->groups().copies().rank() == 0)
    for_each_trained(spec, [&](int unit, const model::ParamSpec& p, std::int64_t first) {
      if (!p.first_holder) return;
      const model::Shard shard = part_of(unit, p);
      const at::Tensor values = shard.values.to(at::kCPU, at::kDouble).contiguous();
      for_each_run(p, shard, [&](std::int64_t element, std::int64_t at, std::int64_t count) {
        std::copy_n(values.const_data_ptr<double>() + at, count, all.begin() + first + element);
      });
    });
  comm_.host().all_reduce(all.data(), all.size(), DType::f64);
  return all;
}

std::vector<double> Run::weights() {
  instance_->settle();
  return whole([&](int unit, const model::ParamSpec& p) { return instance_->param(unit, p); });
}

void Run::set_weights(const std::vector<double>& weights) {
  instance_->settle();
  for_each_trained(instance_->spec(), [&](int unit, const model::ParamSpec& p, std::int64_t first) {
    const model::Shard shard = instance_->param(unit, p);
    const at::Tensor values = at::empty({shard.values.numel()}, at::kDouble);
    for_each_run(p, shard, [&](std::int64_t element, std::int64_t at, std::int64_t count) {
      std::copy_n(weights.begin() + first + element, count, values.data_ptr<double>() + at);
    });
    shard.values.copy_(values);
  });
  instance_->publish();
}

std::vector<std::pair<std::string, std::int64_t>> Run::tensors() const {
  std::vector<std::pair<std::string, std::int64_t>> all;
  for_each_trained(instance_->spec(), [&](int, const model::ParamSpec& p, std::int64_t) {
    all.emplace_back(p.name, static_cast<std::int64_t>(Box::whole(p.shape).elements()));
  });
  return all;
}

void Run::save(const fs::path& folder) {
  comm::agreed(comm_, [&] { train::save_model(config_, *instance_, io::posix_storage(), folder, {comm_, 1}); });
}

fs::path Run::save_checkpoint(const fs::path& folder) {
  config_.training.output_dir = folder.string();
  train::SnapshotInfo info;
  info.progression.step = next_;
  info.run = {std::string(32, 'a'), 1, {}};
  std::unique_ptr<train::RunLog> log;
  if (comm_.rank() == 0) log = std::make_unique<train::RunLog>(folder, 0);
  return train::SnapshotSave(config_, *instance_, comm_, info, log.get(), /*staged=*/false).commit();
}

void Run::load_checkpoint(const fs::path& checkpoint) {
  train::load_snapshot(checkpoint::SharedCheckpoint(comm_, checkpoint), *instance_);
}

namespace {

nlohmann::json bytes_of(const std::vector<double>& values) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(values.data());
  return nlohmann::json::binary({first, first + values.size() * sizeof(double)});
}

std::vector<double> numbers_of(const nlohmann::json& bytes) {
  std::vector<double> values(bytes.get_binary().size() / sizeof(double));
  std::memcpy(values.data(), bytes.get_binary().data(), bytes.get_binary().size());
  return values;
}

nlohmann::json to_json(const Oracle& oracle) {
  nlohmann::json steps = nlohmann::json::array(), files = nlohmann::json::object();
  for (const StepNumbers& s : oracle.steps) steps.push_back({s.loss, s.norm, s.metrics, bytes_of(s.grads)});
  for (const auto& [name, bytes] : oracle.files) files[name] = nlohmann::json::binary({bytes.begin(), bytes.end()});
  return {steps, bytes_of(oracle.weights), files};
}

Oracle oracle_from(const nlohmann::json& json) {
  Oracle oracle;
  for (const auto& s : json.at(0))
    oracle.steps.push_back(
        {s.at(0).get<double>(), s.at(1).get<double>(), s.at(2).get<std::map<std::string, double>>(), numbers_of(s.at(3))});
  oracle.weights = numbers_of(json.at(1));
  for (const auto& [name, bytes] : json.at(2).items())
    oracle.files[name] = {bytes.get_binary().begin(), bytes.get_binary().end()};
  return oracle;
}

Oracle oracle_of(const Case& c, Files& files, const fs::path& folder) {
  const auto self = comm::make_self_communicator();
  Run run(c, *self, files, c10::kCPU);
  Oracle oracle;
  for (int s = 0; s < kSteps; ++s) oracle.steps.push_back(run.step());
  oracle.weights = run.weights();
  run.save(folder);
  oracle.files = read_files(folder);
  return oracle;
}

/// Returns the text of a file. If there is no file, writes what make() returns.
std::string kept_text(const fs::path& path, const std::function<std::string()>& make) {
  if (fs::exists(path)) return test::read_bytes(path);
  const std::string text = make();
  std::ofstream(path, std::ios::binary) << text;
  return text;
}

}  // namespace

std::map<std::pair<std::string_view, std::string_view>, Oracle> oracles(const std::vector<Entry>& list, comm::Communicator& world,
                                                                        Files& files) {
  static constexpr LayoutRow kOneRank{"ddp", {}};
  static constexpr WayRow kItemByItem{.name = "one rank"};
  std::vector<Case> all;
  const auto key = [](const Case& c) { return std::pair(c.model->name, c.task->name); };
  for (const auto& [c, second] : list)
    if (std::ranges::find(all, key(c), key) == all.end()) all.push_back({&kOneRank, &kItemByItem, c.model, c.task});
  std::map<std::pair<std::string_view, std::string_view>, Oracle> results;
  std::vector<std::string> texts(all.size());
  const auto owner = [&](std::size_t i) { return static_cast<int>(i) % world.size(); };
  std::vector<fs::path> folders;
  for (const Case& c : all) config_of(c, files), folders.push_back(files.empty_folder());  // collective: makes the files
  comm::agreed(world, [&] {
    const auto self = comm::make_self_communicator();
    Files own(*self, files);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (owner(i) == world.rank())
        texts[i] = kept_text(files.oracle(*all[i].model, *all[i].task), [&] {
          const auto bytes = nlohmann::json::to_cbor(to_json(oracle_of(all[i], own, folders[i])));
          return std::string(bytes.begin(), bytes.end());
        });
  });
  for (std::size_t i = 0; i < all.size(); ++i)
    results[key(all[i])] = oracle_from(nlohmann::json::from_cbor(comm::broadcast_string(world, std::move(texts[i]), owner(i))));
  return results;
}

}  // namespace qft::parallel::grid
