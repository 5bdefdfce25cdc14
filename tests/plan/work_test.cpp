// The work of ranks that share matrices, together, is that of one rank.
#include "qft/plan/work.h"

#include <gtest/gtest.h>

namespace qft::plan {
namespace {

model::ModelConfig config(bool experts) {
  model::ModelConfig c;
  c.hidden_size = 16, c.intermediate_size = 32, c.num_layers = 1, c.vocab_size = 64;
  c.num_heads = 4, c.num_kv_heads = 2, c.head_dim = 4;
  if (experts) {
    c.experts = {.count = 6, .per_token = 2, .intermediate_size = 8, .shared_size = 12};
    c.sparse = {true};
  }
  return c;
}

Work work_of(const model::ModelConfig& c, model::Share share, bool backward) {
  const auto spec = model::ModelSpec::build(c, model::Finetuning::full, {}, {}, model::Head::language_model, {}, share);
  MicroShape micro;
  micro.add_sequence(7, 3);
  micro.add_sequence(5, 5);
  Work work;
  for (const int block : {1, spec.head_unit()})
    work += backward ? backward_work(spec, block, micro, at::kFloat, /*recompute=*/true, /*input_grad=*/true)
                     : forward_work(spec, block, micro, at::kFloat);
  return work;
}

TEST(Work, OfTensorRanksIsTheirShare) {
  for (const bool experts : {false, true})
    for (const bool backward : {false, true}) {
      const Work whole = work_of(config(experts), {}, backward);
      Work together;
      for (const int rank : {0, 1}) together += work_of(config(experts), {rank, 2}, backward);
      EXPECT_GT(whole.matmul, 0.0);
      EXPECT_DOUBLE_EQ(together.matmul, whole.matmul);
      EXPECT_DOUBLE_EQ(together.attention, whole.attention);
      EXPECT_DOUBLE_EQ(together.bytes, whole.bytes);
    }
}

}  // namespace
}  // namespace qft::plan
