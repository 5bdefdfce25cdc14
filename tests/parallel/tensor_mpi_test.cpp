// A step of ranks that share matrices and rows has loss, norm and gradients of one rank, for every kind of layer and head, with
// micro-batches of any number of rows. The grid (grid_mpi_test.cpp) compares whole runs.
#include "qft/comm/exchange.h"
#include "qft/ops/philox.h"
#include "qft/parallel/executor.h"
#include "qft/parallel/routing_objective.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/device_under_test.h"
#include "support/world.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <gtest/gtest.h>

namespace qft::parallel {
namespace {

constexpr std::int32_t kVocabulary = 53;
constexpr const char* kDense =
    R"("hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 2, "vocab_size": 53, "num_attention_heads": 12,)";

/// A model, what trains, and how.
struct Setup {
  std::string name, config;
  model::Head head = model::Head::language_model;
  model::LoraConfig lora = {};
  bool recompute = false;
  double dropout = 0.0, noise = 0.0;
  const char* strategy = "ddp";
  int tensor = 0;  ///< ranks that share matrices; 0: all
};

std::string config_of(const std::string& type, const std::string& keys) {
  return R"({"model_type": ")" + type + "\", " + kDense + keys + "}";
}

std::uint32_t random(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return ops::philox({a, b, c, 0}, {5, 9})[0];
}

/// Lengths of the sequences of each micro-batch: fewer rows than ranks, and numbers that do not divide.
const std::vector<std::vector<int>> kMicroBatches = {{2}, {5, 2, 9}, {3, 8}};

model::MicroInput micro_batch(std::size_t number, const model::ModelSpec& spec, const model::RowSharing& sharing,
                              c10::Device device) {
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
  in.routing = model::Routing::build(spec.config, in.sequences, at::kDouble, device, sharing);
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
  Ranks(const Setup& setup, int tensor, comm::Communicator& comm, c10::Device device)
      : setup_(setup),
        comm_(comm),
        device_(device),
        sharding_(sharding_of(setup, tensor, comm.size())),
        groups_(comm, device, sharding_),
        sharing_(groups_.tensor()),
        spec_(model::ModelSpec::build(model::ModelConfig::parse(setup.config, setup.name),
                                      setup.lora.enabled() ? model::Finetuning::adapter : model::Finetuning::full, setup.lora, {},
                                      setup.head, {}, {sharing_.rank(), sharing_.ranks()})),
        transformer_(spec_, at::kDouble, device, sharing_),
        store_(sharding_.strategy.sharded() ? make_sharded_store(spec_, optim::Precision::fp64(), device, sharding_.strategy, {},
                                                                 groups_.slices(), groups_.copies(), true, sharing_)
                                            : make_replicated_store(spec_, optim::Precision::fp64(), device, groups_.copies(),
                                                                    true, ReductionOrder::as_ready, 2048, sharing_)) {
    for (int u = 0; u < spec_.num_units(); ++u)
      for (const model::ParamSpec& p : spec_.units[static_cast<std::size_t>(u)].params) fill(u, p);
    store_->broadcast_updates();
  }

  Numbers step() {
    std::vector<model::MicroInput> micros;
    const int data = groups_.data().size();
    double labels = 0.0, tokens = 0.0;
    for (std::size_t m = 0; m < kMicroBatches.size(); ++m) {
      model::MicroInput in = micro_batch(m, spec_, sharing_, device_);
      labels += static_cast<double>(in.labels.size());
      tokens += static_cast<double>(in.num_tokens());
      if (static_cast<int>(m) % data == groups_.data().rank()) micros.push_back(std::move(in));
    }
    const BatchTotals totals{.label_tokens = labels, .items = 6, .tokens = tokens};
    std::unique_ptr<Objective> objective;
    if (setup_.head.of_sequences())
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
  static Sharding sharding_of(const Setup& setup, int tensor, int ranks) {
    Sharding sharding = make_sharding(strategy_of(setup.strategy), {}, ranks / tensor, 1);
    sharding.tensor_ranks = tensor;
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
  model::RowSharing sharing_;
  model::ModelSpec spec_;
  model::Transformer transformer_;
  std::unique_ptr<WeightStore> store_;
};

void expect_close(double got, double want, const std::string& what) {
  EXPECT_NEAR(got, want, 1e-10 * std::max(1e-3, std::abs(want))) << what;
}

void compare(const Setup& setup) {
  SCOPED_TRACE(setup.name);
  const auto self = comm::make_self_communicator();
  Setup alone = setup;
  alone.strategy = "ddp";
  const Numbers want = Ranks(alone, 1, *self, c10::kCPU).step();
  const Numbers got = Ranks(setup, setup.tensor > 0 ? setup.tensor : world().size(), world(), test::device_under_test()).step();
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

model::LoraConfig lora_of(double dropout, bool dora) {
  model::LoraConfig lora;
  lora.rank = 3;
  lora.alpha = 6;
  lora.dropout = dropout;
  lora.dora = dora;
  lora.set_targets("all");
  return lora;
}

const std::string kLlama = config_of("llama", R"("num_key_value_heads": 12, "head_dim": 4, "tie_word_embeddings": false,
    "attention_bias": true, "mlp_bias": true)");
const std::string kTied = config_of("qwen2", R"("num_key_value_heads": 4, "head_dim": 4, "tie_word_embeddings": true,
    "use_sliding_window": true, "max_window_layers": 1, "sliding_window": 4)");
const std::string kOlmo = config_of("olmo2", R"("num_key_value_heads": 12, "head_dim": 4, "tie_word_embeddings": false)");

TEST(TensorRanks, TrainDenseModelsAsOneRank) {
  compare({.name = "biases, untied", .config = kLlama});
  compare({.name = "windows, tied, recomputed", .config = kTied, .recompute = true});
  compare({.name = "norms of heads",
           .config = config_of("qwen3", R"("num_key_value_heads": 4, "head_dim": 8, "tie_word_embeddings": false)")});
  compare({.name = "noise on embeddings", .config = kTied, .noise = 3.0});
}

TEST(TensorRanks, TrainNormsOfAllHeadsAsOneRank) {
  compare({.name = "each key-value head on one rank", .config = kOlmo});
}

TEST(TensorRanks, TrainHeadsOfSequencesAsOneRank) {
  compare({.name = "value", .config = kLlama, .head = model::Head::value});
  compare({.name = "classifier", .config = kLlama, .head = model::Head::classifier(3)});
  compare({.name = "vector", .config = kLlama, .head = model::Head::vector(24)});
  compare({.name = "difference of tokens", .config = kLlama, .head = model::Head::token_difference(5, 49)});
  compare({.name = "difference of tokens, tied", .config = kTied, .head = model::Head::token_difference(5, 49)});
}

/// Two, three and four ranks share one key-value head.
TEST(TensorRanks, ShareAKeyValueHead) {
  const std::string one = R"("num_key_value_heads": 1, "head_dim": 4, "tie_word_embeddings": false)";
  compare({.name = "dense", .config = config_of("qwen2", one)});
  compare({.name = "norms of heads", .config = config_of("qwen3", one)});
  compare({.name = "norms of all heads", .config = config_of("olmo2", one)});
}

TEST(TensorRanks, TrainExpertsAsOneRank) {
  const std::string experts = R"("num_key_value_heads": 4, "head_dim": 4, "tie_word_embeddings": false, "num_experts": 6,
      "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "mlp_only_layers": [1])";
  compare({.name = "shared expert", .config = config_of("qwen2_moe", experts)});
  compare({.name = "LoRA", .config = config_of("qwen2_moe", experts), .lora = lora_of(0.3, false), .dropout = 0.3});
}

TEST(TensorRanks, TrainDeltaNetsAsOneRank) {
  compare({.name = "delta nets", .config = config_of("qwen3_5_text", R"("num_key_value_heads": 4, "head_dim": 8,
      "tie_word_embeddings": true, "linear_num_key_heads": 5, "linear_num_value_heads": 10, "linear_key_head_dim": 6,
      "linear_value_head_dim": 10, "layer_types": ["linear_attention", "full_attention"])")});
}

TEST(TensorRanks, TrainAdaptersAsOneRank) {
  compare({.name = "LoRA with dropout", .config = kLlama, .lora = lora_of(0.3, false), .dropout = 0.3});
  compare({.name = "LoRA, tied", .config = kTied, .lora = lora_of(0.0, false)});
  compare({.name = "DoRA", .config = kLlama, .lora = lora_of(0.0, true)});
  compare({.name = "DoRA with dropout", .config = kLlama, .lora = lora_of(0.3, true), .recompute = true, .dropout = 0.3});
}

TEST(TensorRanks, TrainUnderEachStrategyAsOneRank) {
  if (world().size() % 2 != 0) GTEST_SKIP() << "pairs of ranks share matrices";
  for (const char* strategy : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"})
    compare({.name = strategy, .config = kTied, .strategy = strategy, .tensor = 2});
}

}  // namespace
}  // namespace qft::parallel
