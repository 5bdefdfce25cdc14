// A small model with weights made from names alone, and a global batch that any number of ranks can share: what the self-test and
// the tests of sharding, graphs and decoding train.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/engine/instance.h"
#include "qft/model/spec.h"
#include "qft/optim/precision.h"
#include "qft/parallel/executor.h"
#include "qft/parallel/objective.h"
#include "qft/parallel/strategy.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace qft::selftest {

/// Which model, and how it is trained.
struct SmallCase {
  std::string model_type = "qwen2";
  std::int64_t sliding_window = 0;     ///< of all layers but the first, where it is not 0
  std::int64_t dynamic_positions = 0;  ///< beyond which a sequence has rotary frequencies of its own; 0: none has
  bool tied = true, lora = false, recompute = false;
  bool parts =
      false;  ///< beside LoRA embeddings and norms train in full; without it one layer's feed-forward alone, and the head
  double dropout = 0.0, noise_alpha = 0.0;
  int group = 1;
  std::string strategy = "ddp";
  int hsdp_group = 1;
  std::int64_t prefetch_budget = 1;
  parallel::Offload offload{};
  optim::Precision precision = optim::Precision::fp64();
  double loss_scale = 1.0;
  std::string optim = "adamw";
  double learning_rate = 1e-2;
  double eps = 1e-8;         ///< AdamW's: as large as gradients are, a first step follows them rather than their signs
  double lora_b_rate = 1.0;  ///< times the learning rate
  bool dora = false;         ///< with LoRA, not of experts
  bool oft = false;          ///< rather than LoRA, with `lora`; not of experts
  bool deterministic = false;
  bool graphs = false;
  bool debug_sync = false;  ///< from the second step on, a wait of the host for its device is an error
  int experts = 5;          ///< of each layer that has some
  int item_sequences = 1;
  bool same_prompts = false;   ///< of most items with two sequences: both begin with the same tokens
  bool share_prompts = false;  ///< which have the same rows then
  bool reference = false;      ///< steps have a reference lane
  bool reward = false;         ///< a value head in place of lm_head
  bool weighted = false;       ///< labels count 0.5 to 2, by their tokens
  std::int64_t labels = 0;     ///< of a classifier's head in place of lm_head; each text has the label of its number
  /// What is trained; null: TokenMeanLoss.
  std::unique_ptr<parallel::Objective> (*objective)(const parallel::BatchTotals& totals) = nullptr;
};

/// Three layers of odd widths.
model::ModelSpec make_spec(const SmallCase& c);

struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;  ///< positions
  std::int64_t id = 0;
};

/// Every third is not.
inline bool is_liked(const Sequence& sequence) {
  return sequence.id % 3 != 0;
}

/// Nine items of sequences of different lengths; label tokens are a part of each. `same_prompts`: of all pairs but every fourth
/// both begin with the same tokens, some of them up to the first label and beyond.
std::vector<Sequence> global_batch(int step, int item_sequences = 1, bool same_prompts = false);

/// Tokens of sequence `number`, from the number alone.
std::vector<std::int32_t> small_tokens(int number, int length);

/// A replica over `comm`, which must outlive it, that trains on its share of the global batches: an Instance as the programs have
/// it, but for what the CPU alone would not choose (offloading, graphs) and small buckets, of which there are several.
class SmallRun {
 public:
  /// Collective.
  SmallRun(const SmallCase& c, comm::Communicator& comm, c10::Device device = c10::kCPU);

  /// One optimizer step; `pack` items share a micro-batch. With `asked_to_stop` the ranks vote before each group. Collective.
  parallel::StepResult step(int number, int pack, const parallel::AskedToStop& asked_to_stop = {});
  parallel::ActionList list(int micros, int max_micro_batches, double seconds = 0.0) const {
    return instance_->training_list(micros, max_micro_batches, seconds);
  }
  /// All trainable weights, one unit after another, fp64, without padding. Collective.
  std::vector<double> weights() const;

  engine::Instance& instance() { return *instance_; }
  model::Transformer& transformer() { return instance_->transformer(); }
  parallel::WeightReader& reader() { return instance_->weights(); }
  parallel::Executor& executor() { return instance_->executor(); }
  const parallel::Layout& layout() const { return instance_->layout(); }
  const model::ModelSpec& spec() const { return instance_->spec(); }
  const optim::Optimizer& optimizer() const { return *instance_->optimizer(); }

 private:
  model::MicroInput build(const std::vector<Sequence>& batch, int first, int count) const;

  SmallCase case_;
  comm::Communicator& comm_;
  c10::Device device_;
  std::unique_ptr<engine::Instance> instance_;
};

}  // namespace qft::selftest
