// A small model with weights derived from names only, and a global batch that any number of ranks can share. The self-test and
// the tests of sharding, graphs and decoding train it.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/engine/instance.h"
#include "qft/model/spec.h"
#include "qft/optim/precision.h"
#include "qft/parallel/executor.h"
#include "qft/parallel/objective.h"
#include "qft/parallel/strategy.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace qft::selftest {

/// A model and how to train it.
struct SmallCase {
  std::string model_type = "qwen2";
  std::int64_t sliding_window = 0;     ///< of all layers except the first; 0: none
  std::int64_t dynamic_positions = 0;  ///< longer sequences get their own rotary frequencies; 0: no dynamic scaling
  std::int64_t heads = 3;              ///< query heads; they share one key and value head
  bool tied = true, lora = false, recompute = false;
  /// With LoRA: embeddings and norms train in full too. Without: only one layer's feed-forward and the head train.
  bool parts = false;
  double dropout = 0.0, noise_alpha = 0.0;
  int group = 1;
  std::string strategy = "ddp";
  int hsdp_group = 1;
  int context_ranks = 1;  ///< ranks that share a data rank's sequences
  int tensor_ranks = 1;   ///< ranks that share a data rank's matrices
  std::int64_t prefetch_budget = 1;
  parallel::Offload offload{};
  optim::Precision precision = optim::Precision::fp64();
  double loss_scale = 1.0;
  std::string optim = "adamw";
  double learning_rate = 1e-2;
  double eps = 1e-8;  ///< AdamW's. At the size of the gradients, a first step follows their values and not only their signs
  double lora_b_rate = 1.0;  ///< times the learning rate
  bool dora = false;         ///< with LoRA; not for experts
  bool oft = false;          ///< OFT instead of LoRA, with `lora`; not for experts
  bool deterministic = false;
  bool graphs = false;
  bool debug_sync = false;  ///< from the second step on, it is an error if the host waits for its device
  int experts = 5;          ///< per sparse layer
  int item_sequences = 1;
  bool same_prompts = false;      ///< most items with two sequences: both begin with the same tokens
  bool share_prompts = false;     ///< the common tokens share rows
  bool reference = false;         ///< steps have a reference lane
  bool reward = false;            ///< a value head in place of lm_head
  bool weighted = false;          ///< labels weigh 0.5 to 2, depending on their tokens
  bool vectors = false;           ///< the head gives vectors
  bool token_difference = false;  ///< the head gives the difference of two tokens' logits
  std::int64_t labels = 0;        ///< classification head instead of lm_head; a text's label depends on its number. 0: none
  /// The trained objective; null: TokenMeanLoss.
  std::function<std::unique_ptr<parallel::Objective>(const parallel::BatchTotals& totals)> objective = nullptr;
};

/// Returns a model of three layers with odd widths; `share`: this rank among those that share matrices.
model::ModelSpec make_spec(const SmallCase& c, model::Share share = {}, model::Share context = {});

/// A sequence of the global batch.
struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;  ///< positions
  std::int64_t id = 0;
};

/// True for two of three sequences.
inline bool is_desirable(const Sequence& sequence) {
  return sequence.id % 3 != 0;
}

/// Returns nine items of sequences with different lengths; some tokens of each are labels. With `same_prompts` both sequences of
/// a pair begin with the same tokens, in three of four pairs; some share them up to the first label and beyond.
std::vector<Sequence> global_batch(int step, int item_sequences = 1, bool same_prompts = false);

/// Returns the tokens of sequence `number`, derived from the number only.
std::vector<std::int32_t> small_tokens(int number, int length);

/// A replica over `comm`, which must outlive it, that trains on its share of the global batches. Uses an Instance like the
/// programs, but with settings that the CPU alone would not choose (offloading, graphs), and with several small buckets.
class SmallRun {
 public:
  /// Collective.
  SmallRun(const SmallCase& c, comm::Communicator& comm, c10::Device device = c10::kCPU);

  /// Runs one optimizer step; `pack` items share a micro-batch. With `stop_requested` the ranks vote before each group.
  /// Collective.
  parallel::StepResult step(int number, int pack, const parallel::StopRequested& stop_requested = {});
  parallel::ActionList list(int micros, int max_micro_batches, double seconds = 0.0) const {
    return instance_->training_list(micros, max_micro_batches, seconds);
  }
  /// Returns all trainable weights, one unit after another, in fp64, without padding. Collective.
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
  c10::Device device_;
  std::unique_ptr<engine::Instance> instance_;
};

}  // namespace qft::selftest
