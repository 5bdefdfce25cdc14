#include "qft/selftest/small_run.h"

#include "qft/core/hash.h"
#include "qft/encode/item_columns.h"
#include "qft/engine/objectives.h"
#include "qft/engine/run_plan.h"
#include "qft/loader/shared_prompts.h"
#include "qft/ops/philox.h"
#include "qft/parallel/routing_objective.h"
#include "qft/parallel/whole_tensors.h"

#include <algorithm>
#include <array>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

namespace qft::selftest {
namespace {

constexpr std::uint32_t kVocabulary = 53;
constexpr parallel::RoutingCoefficients kRouting{0.3, 0.02};
constexpr const char* kExperts =
    R"("num_experts_per_tok":2,"moe_intermediate_size":16,"shared_expert_intermediate_size":24,"mlp_only_layers":[1],)";
constexpr const char* kDeltaNet =
    R"("linear_num_key_heads":2,"linear_num_value_heads":4,"linear_key_head_dim":6,"linear_value_head_dim":10,)";
constexpr double kLongStep = 1e6;  // seconds: a vote before each group

/// Fills this rank's slice of a parameter with values in center + [-bound, bound), derived from name and logical index only.
void fill(const model::Shard& slice, const model::ParamSpec& p, double bound, double center) {
  const auto site = static_cast<std::uint32_t>(std::stoul(hash_hex(p.name).substr(0, 8), nullptr, 16));
  const std::int64_t count = slice.values.numel();
  if (count == 0) return;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto index = static_cast<std::uint32_t>(model::logical_index(p, slice.begin + static_cast<std::int64_t>(i)));
    values[i] = center + bound * (2.0 * ops::philox({index, 0, 0, 0}, {site, 1})[0] / 4294967296.0 - 1.0);
  }
  slice.values.copy_(at::from_blob(values.data(), {count}, at::kDouble));
}

plan::RunPlan plan_of(const SmallCase& c, int rank, int ranks) {
  plan::RunPlan run;
  const comm::Mesh mesh({.replicate = 0, .context = c.context_ranks, .tensor = c.tensor_ranks}, rank, ranks);
  const auto shares = engine::RankShares::of(mesh);
  run.spec = std::make_shared<const model::ModelSpec>(make_spec(c, shares.tensor, shares.context));
  run.precision = c.precision;
  run.rule = &optim::rule_of(c.optim);
  run.hyper = {.eps = c.eps, .weight_decay = 0.01};
  run.random = {.lora_dropout = c.lora ? c.dropout : 0.0, .noise_alpha = c.noise_alpha, .seed = 99};
  run.diagnostics.debug_sync = c.debug_sync;
  run.sharding = parallel::make_sharding(parallel::strategy_of(c.strategy), c.offload, ranks / (c.context_ranks * c.tensor_ranks),
                                         c.hsdp_group);
  run.sharding.context_ranks = c.context_ranks;
  run.sharding.tensor_ranks = c.tensor_ranks;
  if (c.deterministic) run.sharding.reduction_order = parallel::ReductionOrder::by_micro_batch;
  run.sharding.bucket_bytes = 2048;
  run.sharding.prefetch_budget = c.prefetch_budget;
  run.schedule = parallel::make_schedule(run.sharding);
  run.schedule.group = c.group;
  run.schedule.reference = c.reference;
  run.schedule.recompute = c.recompute;
  run.schedule.graphs = c.graphs;
  return run;
}

model::Head head_of(const SmallCase& c) {
  if (c.labels > 0) return model::Head::classifier(c.labels);
  if (c.vectors) return model::Head::vector(24);
  if (c.token_difference) return model::Head::token_difference(5, 9);
  return c.reward ? model::Head::value : model::Head::language_model;
}

}  // namespace

model::ModelSpec make_spec(const SmallCase& c, model::Share share, model::Share context) {
  const std::string text =
      R"({"model_type":")" + c.model_type +
      R"(","hidden_size":24,"intermediate_size":40,"num_hidden_layers":3,"num_attention_heads":)" + std::to_string(c.heads) +
      R"(,"num_key_value_heads":1,"head_dim":8,"vocab_size":)" + std::to_string(kVocabulary) + "," +
      (c.sliding_window > 0
           ? R"("use_sliding_window":true,"max_window_layers":1,"sliding_window":)" + std::to_string(c.sliding_window) + ","
           : "") +
      (c.dynamic_positions > 0 ? R"("rope_scaling":{"rope_type":"dynamic","factor":4},"max_position_embeddings":)" +
                                     std::to_string(c.dynamic_positions) + ","
                               : "") +
      (c.model_type.ends_with("_moe") ? fmt::format(R"("num_experts":{},)", c.experts) + kExperts : "") +
      (c.model_type.starts_with("qwen3_5") || c.model_type == "qwen3_next" ? kDeltaNet : "") + R"("tie_word_embeddings":)" +
      (c.tied ? "true}" : "false}");
  model::LoraConfig lora;
  if (c.lora) {
    lora.rank = 3;
    lora.alpha = 6;
    lora.dropout = c.dropout;
    lora.dora = c.dora;
    lora.set_targets(c.model_type.ends_with("_moe") ? "all,gate" : "all");
    if (c.parts) lora.modules_to_save = {"embed_tokens", "norm"};
  }
  model::OftConfig oft;
  if (c.oft) {
    oft.block_size = 8;
    oft.set_targets(c.model_type.ends_with("_moe") ? "q_proj,k_proj,v_proj,o_proj,out_proj,gate" : "all");
    if (c.parts) oft.modules_to_save = {"embed_tokens", "norm"};
  }
  const auto method = c.lora ? model::Finetuning::adapter : c.parts ? model::Finetuning::freeze : model::Finetuning::full;
  model::FreezeConfig freeze{.layers = {1}, .modules = {"mlp"}, .extra_modules = {}};
  if (!c.tied && !c.reward && !c.vectors && c.labels == 0) freeze.extra_modules = {"lm_head"};
  auto spec = model::ModelSpec::build(model::ModelConfig::parse(text, "small model"), method,
                                      c.oft ? model::AdapterConfig(oft) : model::AdapterConfig(lora), {}, head_of(c), freeze,
                                      share, context);
  for (auto& unit : spec.units)
    for (auto& p : unit.params)
      if (p.role == model::Role::lora_b) p.lr_factor = c.lora_b_rate;
  return spec;
}

std::vector<Sequence> global_batch(int step, int item_sequences, bool same_prompts) {
  std::vector<Sequence> all;
  for (int s = 0; s < 9 * item_sequences; ++s) {
    Sequence q;
    q.id = step * 100 + s;
    const int length = 3 + (s * 7 + step * 5) % 19;
    for (int t = 0; t < length; ++t) {
      q.tokens.push_back(static_cast<std::int32_t>(
          ops::philox({static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(q.id), 0, 0}, {7, 7})[0] % kVocabulary));
      if (t > length / 3) q.labels.push_back(t);
    }
    all.push_back(std::move(q));
  }
  for (std::size_t s = 1; same_prompts && s < all.size(); s += 2) {
    if (s / 2 % 4 == 3) continue;
    const auto common = std::min({all[s - 1].tokens.size(), all[s].tokens.size(), s});
    std::copy_n(all[s - 1].tokens.begin(), common, all[s].tokens.begin());
  }
  return all;
}

std::vector<std::int32_t> small_tokens(int number, int length) {
  std::vector<std::int32_t> ids;
  for (int t = 0; t < length; ++t)
    ids.push_back(static_cast<std::int32_t>(
        ops::philox({static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(number), 0, 0}, {3, 3})[0] % kVocabulary));
  return ids;
}

SmallRun::SmallRun(const SmallCase& c, comm::Communicator& comm, c10::Device device)
    : case_(c), device_(device), instance_(engine::Instance::build(plan_of(c, comm.rank(), comm.size()), comm, device)) {
  for (int u = 0; u < spec().num_units(); ++u)
    for (const auto& p : spec().units[static_cast<std::size_t>(u)].params) {
      const bool norm = p.shape.size() == 1 && p.name.find("norm") != std::string::npos;
      fill(instance_->param(u, p), p, 0.3, norm || p.role == model::Role::magnitude ? 1.0 : 0.0);
    }
  instance_->publish();
}

parallel::StepResult SmallRun::step(int number, int pack, const parallel::StopRequested& stop_requested) {
  const auto batch = global_batch(number, case_.item_sequences, case_.same_prompts);
  double labels = 0;
  for (const auto& s : batch) labels += static_cast<double>(s.labels.size());
  std::vector<model::MicroInput> micros;
  const comm::Communicator& data = instance_->groups().data();
  const int items = static_cast<int>(batch.size()) / case_.item_sequences, bins = (items + pack - 1) / pack, ranks = data.size();
  const int first = bins * data.rank() / ranks, last = bins * (data.rank() + 1) / ranks;
  for (int b = first; b < last; ++b) micros.push_back(build(batch, b * pack, std::min(pack, items - b * pack)));
  const int max_micro_batches = (bins + ranks - 1) / ranks;
  const parallel::MicroRange range =
      case_.deterministic ? parallel::MicroRange{first, last - first, bins} : parallel::MicroRange{};
  double tokens = 0, desirable = 0, first_labels = 0;
  for (const auto& s : batch) tokens += static_cast<double>(s.tokens.size()), desirable += is_desirable(s);
  for (std::size_t s = 0; s < batch.size(); s += static_cast<std::size_t>(case_.item_sequences))
    first_labels += static_cast<double>(batch[s].labels.size());
  const parallel::BatchTotals totals{.label_tokens = labels,
                                     .items = static_cast<double>(items),
                                     .tokens = tokens,
                                     .weighted = case_.weighted,
                                     .named = {{std::string(totals::kDesirable), desirable},
                                               {std::string(totals::kChosenLabels), first_labels},
                                               {std::string(totals::kKl), 0.0},
                                               {std::string(totals::kReward), 0.0}}};
  auto objective = case_.objective ? case_.objective(totals) : std::make_unique<parallel::TokenMeanLoss>(totals);
  if (spec().config.experts.count > 0)
    objective = std::make_unique<parallel::RoutingObjective>(std::move(objective), spec().config, kRouting, totals);
  const auto result =
      executor().train(list(static_cast<int>(micros.size()), max_micro_batches, stop_requested ? kLongStep : 0.0), micros,
                       *objective, static_cast<std::uint64_t>(number), stop_requested, case_.loss_scale, range);
  if (!result.finite || result.abandoned) return result;
  instance_->update(case_.learning_rate, std::min(1.0, 1.0 / (result.grad_norm + 1e-6)) / case_.loss_scale);
  return result;
}

std::vector<double> SmallRun::weights() const {
  std::vector<double> all;
  const at::Tensor room = instance_->master_buffer();
  parallel::WholeTensors tensors(spec(), instance_->groups().tensor(), device_, [](const model::ParamSpec&) { return true; });
  for (int u = 0; u < spec().num_units(); ++u) {
    const model::UnitSpec& unit = spec().units[static_cast<std::size_t>(u)];
    if (unit.trainable_numel == 0) continue;
    const at::Tensor masters = instance_->whole_master(u, room);
    for (const model::ParamSpec& p : unit.params) {
      if (!p.trainable) continue;
      const at::Tensor whole =
          tensors.put_together(p, masters.narrow(0, p.offset, p.numel)).to(c10::kCPU, at::kDouble).contiguous();
      all.insert(all.end(), whole.data_ptr<double>(), whole.data_ptr<double>() + whole.numel());
    }
  }
  return all;
}

model::MicroInput SmallRun::build(const std::vector<Sequence>& batch, int first, int count) const {
  std::vector<std::int32_t> tokens, cu = {0}, labels, items = {0}, shared;
  std::vector<std::int64_t> samples;
  Column desirable{IndexSpace::item}, weights{IndexSpace::label}, targets{IndexSpace::item};
  const int each = case_.item_sequences;
  for (int s = first * each; s < (first + count) * each; ++s) {
    const auto& q = batch[static_cast<std::size_t>(s)];
    for (const int p : q.labels) {
      labels.push_back(static_cast<std::int32_t>(tokens.size()) + p);
      weights.values.push_back(0.5 + q.tokens[static_cast<std::size_t>(p)] % 4 * 0.5);
    }
    tokens.insert(tokens.end(), q.tokens.begin(), q.tokens.end());
    cu.push_back(static_cast<std::int32_t>(tokens.size()));
    samples.push_back(q.id);
    shared.push_back(0);
    if (case_.share_prompts && s % 2 == 1) {
      const Sequence& first = batch[static_cast<std::size_t>(s) - 1];
      shared.back() = loader::shared_prompt(first.tokens, first.labels.front(), q.tokens, q.labels.front());
    }
    if (each == 1) desirable.values.push_back(is_desirable(q) ? 1.0 : 0.0);
    if (case_.labels > 0) targets.append_list(std::array{static_cast<double>(q.id % case_.labels)});
    if ((s + 1) % each == 0) items.push_back(static_cast<std::int32_t>(samples.size()));
  }
  model::MicroInput in = model::MicroInput::build(tokens, cu, labels, samples, device_, items, shared);
  Columns columns;
  if (each == 1) columns.emplace(columns::kDesirable, std::move(desirable));
  if (case_.weighted) columns.emplace(columns::kLabelWeights, std::move(weights));
  if (case_.labels > 0) columns.emplace(columns::kTargets, std::move(targets));
  in.set_columns(columns);
  in.routing = model::Routing::build(spec().config, in.sequences, instance_->transformer().statistics_dtype(), device_,
                                     instance_->transformer().tensor(), instance_->transformer().context());
  in.keep_rows_of(instance_->transformer().context());
  return in;
}

}  // namespace qft::selftest
