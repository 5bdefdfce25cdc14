// A small model with weights made from names alone, and a global batch that any number of ranks can share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/from_blob.h>

#include "qft/core/hash.h"
#include "qft/model/ops/philox.h"
#include "qft/parallel/executor.h"

namespace qft::parallel::testing {

struct Case {
  std::string model_type = "qwen2";
  bool tied = true, lora = false, recompute = false;
  double dropout = 0.0;
  int group = 1;
  optim::Precision precision = optim::Precision::fp64();
};

inline model::ModelSpec make_spec(const Case& c) {
  const std::string text = R"({"model_type":")" + c.model_type +
                           R"(","hidden_size":24,"intermediate_size":40,"num_hidden_layers":3,"num_attention_heads":3,)" +
                           R"("num_key_value_heads":1,"head_dim":8,"vocab_size":53,"tie_word_embeddings":)" +
                           (c.tied ? "true}" : "false}");
  model::LoraConfig lora;
  if (c.lora) {
    lora.rank = 3;
    lora.alpha = 6;
    lora.dropout = c.dropout;
    lora.set_targets("all");
  }
  return model::ModelSpec::build(model::ModelConfig::parse(text, "test"),
                                 c.lora ? model::Finetuning::lora : model::Finetuning::full, lora);
}

/// Values in [-bound, bound) from the name alone.
inline void fill(at::Tensor dst, const std::string& name, double bound, double center) {
  const auto site = static_cast<std::uint32_t>(std::stoul(hash_hex(name).substr(0, 8), nullptr, 16));
  std::vector<double> values(static_cast<std::size_t>(dst.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = center + bound * (2.0 * model::ops::philox({static_cast<std::uint32_t>(i), 0, 0, 0}, {site, 1})[0] / 4294967296.0 - 1.0);
  dst.copy_(at::from_blob(values.data(), {dst.numel()}, at::kDouble));
}

struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;
  std::int64_t id = 0;
};

/// Nine sequences of different lengths; label tokens are a part of each.
inline std::vector<Sequence> global_batch(int step) {
  std::vector<Sequence> all;
  for (int s = 0; s < 9; ++s) {
    Sequence q;
    q.id = step * 100 + s;
    const int length = 3 + (s * 7 + step * 5) % 19;
    for (int t = 0; t < length; ++t) {
      q.tokens.push_back(static_cast<std::int32_t>(
          model::ops::philox({static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(q.id), 0, 0}, {7, 7})[0] % 53));
      if (t > length / 3) q.labels.push_back(t);
    }
    all.push_back(std::move(q));
  }
  return all;
}

/// A replica over `comm` that trains on its share of the global batches.
class TinyRun {
 public:
  TinyRun(const Case& c, comm::Communicator& comm)
      : case_(c), comm_(comm), spec_(make_spec(c)), transformer_(spec_, c.precision.compute, at::kCPU) {
    store_ = make_replicated_store(spec_, c.precision, at::kCPU, comm, true, /*bucket_bytes=*/2048);
    adam_ = std::make_unique<optim::AdamW>(store_->owned(), optim::AdamWOptions{.weight_decay = 0.01}, c.precision);
    int index = 0;
    for (int u = 0; u < spec_.num_units(); ++u) {
      const auto& unit = spec_.units[static_cast<std::size_t>(u)];
      for (const auto& p : unit.params) {
        const bool norm = p.shape.size() == 1 && p.name.find("norm") != std::string::npos;
        const at::Tensor dst = p.trainable ? adam_->master(static_cast<std::size_t>(index)).narrow(0, p.offset, p.numel)
                                           : store_->acquire(u).frozen.narrow(0, p.offset, p.numel);
        fill(dst, p.name, 0.3, norm ? 1.0 : 0.0);
      }
      if (unit.trainable_numel > 0) ++index;
    }
    adam_->publish();
    executor_ = std::make_unique<Executor>(transformer_, *store_, comm,
                                           ExecutorOptions{c.recompute, c.lora ? c.dropout : 0.0, 99});
  }

  /// One optimizer step; `pack` sequences share a micro-batch.
  StepResult step(int number, int pack) {
    const auto batch = global_batch(number);
    double labels = 0;
    for (const auto& s : batch) labels += static_cast<double>(s.labels.size());
    std::vector<model::MicroInput> micros;
    const int bins = (static_cast<int>(batch.size()) + pack - 1) / pack;
    for (int b = comm_.rank(); b < bins; b += comm_.size()) micros.push_back(build(batch, b * pack, pack));
    const int slots = (bins + comm_.size() - 1) / comm_.size();
    TokenMeanLoss loss(labels);
    const auto result = executor_->train(
        training_schedule(spec_, {static_cast<int>(micros.size()), slots, std::min(case_.group, slots), false}), micros, loss,
        static_cast<std::uint64_t>(number));
    adam_->step(1e-2, std::min(1.0, 1.0 / (result.grad_norm + 1e-6)));
    return result;
  }

  /// All trainable weights, one after another, fp64.
  std::vector<double> weights() const {
    std::vector<double> all;
    for (std::size_t i = 0; i < adam_->size(); ++i) {
      const at::Tensor t = adam_->master(i).to(at::kDouble).contiguous();
      all.insert(all.end(), t.const_data_ptr<double>(), t.const_data_ptr<double>() + t.numel());
    }
    return all;
  }

 private:
  static model::MicroInput build(const std::vector<Sequence>& batch, int first, int pack) {
    std::vector<std::int32_t> tokens, cu = {0}, labels;
    std::vector<std::int64_t> samples;
    for (int s = first; s < std::min<int>(first + pack, static_cast<int>(batch.size())); ++s) {
      const auto& q = batch[static_cast<std::size_t>(s)];
      for (const int p : q.labels) labels.push_back(static_cast<std::int32_t>(tokens.size()) + p);
      tokens.insert(tokens.end(), q.tokens.begin(), q.tokens.end());
      cu.push_back(static_cast<std::int32_t>(tokens.size()));
      samples.push_back(q.id);
    }
    return model::MicroInput::build(tokens, cu, labels, samples, at::kCPU);
  }

  Case case_;
  comm::Communicator& comm_;
  model::ModelSpec spec_;
  model::Transformer transformer_;
  std::unique_ptr<WeightStore> store_;
  std::unique_ptr<optim::AdamW> adam_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace qft::parallel::testing
