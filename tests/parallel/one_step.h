// One training step of a small model on ranks that share matrices, sequences or both, compared with one rank in fp64.
#pragma once

#include "qft/comm/exchange.h"
#include "qft/ops/philox.h"
#include "qft/parallel/executor.h"
#include "qft/parallel/routing_objective.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/device_under_test.h"
#include "support/world.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace qft::parallel {

inline constexpr std::int32_t kVocabulary = 53;
inline constexpr const char* kDense =
    R"("hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 2, "vocab_size": 53, "num_attention_heads": 12,)";

/// A model, what trains, and how.
struct Setup {
  std::string name, config;
  model::Head head = model::Head::language_model;
  model::LoraConfig lora = {};
  bool recompute = false;
  double dropout = 0.0, noise = 0.0;
  const char* strategy = "ddp";
  int tensor = 0;   ///< ranks that share matrices; 0: all that `context` leaves
  int context = 1;  ///< ranks that share sequences
  /// The trained objective; null: TokenMeanLoss, or WeightedValues for heads of sequences.
  std::function<std::unique_ptr<Objective>(const BatchTotals&)> objective = {};
};

inline std::string config_of(const std::string& type, const std::string& keys) {
  return R"({"model_type": ")" + type + "\", " + kDense + keys + "}";
}

inline std::uint32_t random(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return ops::philox({a, b, c, 0}, {5, 9})[0];
}

/// Lengths of the sequences of each micro-batch: fewer rows than ranks, and numbers that do not divide.
inline const std::vector<std::vector<int>> kMicroBatches = {{2}, {5, 2, 9}, {3, 8}};

inline model::MicroInput micro_batch(std::size_t number, const model::ModelSpec& spec, const model::RowSharing& tensor,
                                     const model::RowSharing& context, c10::Device device) {
  std::vector<std::int32_t> tokens, cu = {0}, labels;
  std::vector<std::int64_t> samples;
  for (std::size_t s = 0; s < kMicroBatches[number].size(); ++s) {
    const int length = kMicroBatches[number][s];
    samples.push_back(static_cast<std::int64_t>(10 * number + s));
    for (int t = 0; t < length; ++t) {
      if (t > length / 2) labels.push_back(static_cast<std::int32_t>(tokens.size()));
      tokens.push_back(static_cast<std::int32_t>(
          random(static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(samples[s]), 1) % kVocabulary));
    }
    cu.push_back(static_cast<std::int32_t>(tokens.size()));
  }
  model::MicroInput in = model::MicroInput::build(tokens, cu, labels, samples, device);
  in.routing = model::Routing::build(spec.config, in.sequences, at::kDouble, device, tensor, context);
  in.keep_rows_of(context);
  return in;
}

/// The sum over sequences of weights times values, for heads of sequences.
class WeightedValues final : public Objective {
 public:
  ObjectiveKind kind() const override { return ObjectiveKind::sequence_level; }
  double denominator() const override { return 1.0; }
  at::Tensor observe(const model::MicroInput& /*in*/, const Logprobs& logprobs, const at::Tensor& grad) const override {
    const at::Tensor weights = at::empty_like(logprobs.policy);
    for (std::int64_t i = 0; i < weights.numel(); ++i) weights[i] = std::sin(1.0 + static_cast<double>(i));
    if (grad.defined()) grad.copy_(weights);
    return (weights * logprobs.policy).sum().to(at::kDouble).view({1});
  }
};

struct Numbers {
  double loss = 0.0, norm = 0.0;
  std::map<std::string, std::vector<double>> grads = {};
};

/// A model over ranks, with weights that depend on names and logical places alone.
class Ranks {
 public:
  Ranks(const Setup& setup, comm::Communicator& comm, c10::Device device)
      : setup_(setup),
        comm_(comm),
        device_(device),
        sharding_(sharding_of(setup, comm.size())),
        groups_(comm, device, sharding_),
        tensor_(groups_.tensor()),
        context_(groups_.context()),
        spec_(model::ModelSpec::build(model::ModelConfig::parse(setup.config, setup.name),
                                      setup.lora.enabled() ? model::Finetuning::adapter : model::Finetuning::full, setup.lora, {},
                                      setup.head, {}, {tensor_.rank(), tensor_.ranks()}, {context_.rank(), context_.ranks()})),
        transformer_(spec_, at::kDouble, device, tensor_, context_),
        store_(sharding_.strategy.sharded() ? make_sharded_store(spec_, optim::Precision::fp64(), device, sharding_.strategy, {},
                                                                 groups_.slices(), groups_.copies(), true, tensor_)
                                            : make_replicated_store(spec_, optim::Precision::fp64(), device, groups_.copies(),
                                                                    true, ReductionOrder::as_ready, 2048, tensor_)) {
    for (int u = 0; u < spec_.num_units(); ++u)
      for (const model::ParamSpec& p : spec_.units[static_cast<std::size_t>(u)].params) fill(u, p);
    store_->broadcast_updates();
  }

  Numbers step() {
    std::vector<model::MicroInput> micros;
    const int data = groups_.data().size();
    double labels = 0.0, tokens = 0.0;
    for (std::size_t m = 0; m < kMicroBatches.size(); ++m) {
      model::MicroInput in = micro_batch(m, spec_, tensor_, context_, device_);
      labels += static_cast<double>(in.labels.size());
      tokens += static_cast<double>(in.sequences.num_rows());
      if (static_cast<int>(m) % data == groups_.data().rank()) micros.push_back(std::move(in));
    }
    const BatchTotals totals{.label_tokens = labels, .items = 6, .tokens = tokens};
    std::unique_ptr<Objective> objective;
    if (setup_.objective)
      objective = setup_.objective(totals);
    else if (setup_.head.of_sequences())
      objective = std::make_unique<WeightedValues>();
    else
      objective = std::make_unique<TokenMeanLoss>(totals);
    if (spec_.config.experts.count > 0)
      objective = std::make_unique<RoutingObjective>(std::move(objective), spec_.config, RoutingCoefficients{0.3, 0.02}, totals);
    Schedule schedule = make_schedule(sharding_);
    schedule.recompute = setup_.recompute;
    Executor executor(transformer_, *store_, groups_, schedule,
                      {.lora_dropout = setup_.dropout, .noise_alpha = setup_.noise, .seed = 3}, {});
    const int most = (static_cast<int>(kMicroBatches.size()) + data - 1) / data;
    const auto list = training_actions(spec_, schedule, {static_cast<int>(micros.size()), most});
    const StepResult result = executor.train(list, micros, *objective, 1);
    return {result.loss, result.grad_norm, grads()};
  }

 private:
  static Sharding sharding_of(const Setup& setup, int ranks) {
    const int tensor = setup.tensor > 0 ? setup.tensor : ranks / setup.context;
    Sharding sharding = make_sharding(strategy_of(setup.strategy), {}, ranks / (tensor * setup.context), 1);
    sharding.tensor_ranks = tensor;
    sharding.context_ranks = setup.context;
    return sharding;
  }

  /// Calls f(element of the flat part, element of the whole tensor) for the parameter's elements in [begin, end) of its unit's
  /// flat buffer.
  template <class F>
  static void for_each_element(const model::ParamSpec& p, std::int64_t begin, std::int64_t end, const F& f) {
    for (std::int64_t i = std::max(begin, p.offset); i < std::min(end, p.offset + p.numel); ++i)
      f(i - begin, model::logical_index(p, i - p.offset));
  }

  void fill(int unit, const model::ParamSpec& p) {
    const model::Shard shard = store_->resident_shard(unit, p.part());
    const std::uint32_t site = static_cast<std::uint32_t>(std::hash<std::string>()(p.name));
    const bool norm = p.name.find("norm") != std::string::npos || p.role == model::Role::magnitude;
    at::Tensor values = shard.values.to(at::kCPU).contiguous();
    for_each_element(p, shard.begin, shard.end(), [&](std::int64_t i, std::int64_t logical) {
      const double uniform = random(static_cast<std::uint32_t>(logical), site, 2) / 2147483648.0 - 1.0;
      values.data_ptr<double>()[i] = (norm ? 1.0 : 0.0) + 0.3 * uniform;
    });
    if (shard.values.numel() > 0) shard.values.copy_(values);
  }

  std::map<std::string, std::vector<double>> grads() {
    std::map<std::string, std::vector<double>> all;
    const std::vector<optim::FlatParams> owned = store_->owned();
    std::size_t next = 0;
    for (const model::UnitSpec& unit : spec_.units) {
      if (unit.trainable_numel == 0) continue;
      const optim::FlatParams& flat = owned[next++];
      const at::Tensor values = flat.grads.to(at::kCPU).contiguous();
      for (const model::ParamSpec& p : unit.params) {
        if (!p.trainable) continue;
        std::vector<double>& whole = all[p.name];
        whole.resize(static_cast<std::size_t>(Box::whole(p.shape).elements()));
        if (p.first_holder && groups_.copies().rank() == 0)
          for_each_element(p, flat.begin, flat.begin + values.numel(), [&](std::int64_t i, std::int64_t logical) {
            whole[static_cast<std::size_t>(logical)] = values.const_data_ptr<double>()[i];
          });
        comm_.host().all_reduce(whole.data(), whole.size(), DType::f64);
      }
    }
    return all;
  }

  const Setup& setup_;
  comm::Communicator& comm_;
  c10::Device device_;
  Sharding sharding_;
  Groups groups_;
  model::RowSharing tensor_, context_;
  model::ModelSpec spec_;
  model::Transformer transformer_;
  std::unique_ptr<WeightStore> store_;
};

inline void expect_close(double got, double want, const std::string& what) {
  EXPECT_NEAR(got, want, 1e-10 * std::max(1e-3, std::abs(want))) << what;
}

inline void compare(const Setup& setup) {
  SCOPED_TRACE(setup.name);
  const auto self = comm::make_self_communicator();
  Setup alone = setup;
  alone.strategy = "ddp";
  alone.tensor = alone.context = 1;
  const Numbers want = Ranks(alone, *self, c10::kCPU).step();
  const Numbers got = Ranks(setup, world(), test::device_under_test()).step();
  expect_close(got.loss, want.loss, "loss");
  ASSERT_EQ(got.grads.size(), want.grads.size());
  for (const auto& [name, grads] : want.grads) {
    const std::vector<double>& ours = got.grads.at(name);
    ASSERT_EQ(ours.size(), grads.size()) << name;
    double norm = 0.0, most = 0.0;
    for (std::size_t i = 0; i < grads.size(); ++i) {
      norm += grads[i] * grads[i];
      most = std::isnan(ours[i]) ? HUGE_VAL : std::max(most, std::abs(ours[i] - grads[i]));
    }
    EXPECT_LE(most, 1e-10 * std::max(std::sqrt(norm), 1e-6 * want.norm)) << name;
  }
  expect_close(got.norm, want.norm, "norm");
}

}  // namespace qft::parallel
