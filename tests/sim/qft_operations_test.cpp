// qft's operations on the simulated device, which they see as some device other than the CPU: fp64 results equal the CPU's.
#include "qft/device/upload.h"
#include "qft/ops/activation.h"
#include "qft/ops/attention.h"
#include "qft/ops/dropout.h"
#include "qft/ops/embedding.h"
#include "qft/ops/head.h"
#include "qft/ops/linear.h"
#include "qft/ops/norm.h"
#include "qft/ops/rope.h"
#include "qft/ops/token_sums.h"
#include "qft/ops/workspace.h"

#include <functional>
#include <vector>

#include "fixture.h"
#include "pageable.h"

namespace qft::sim {
namespace {

constexpr std::int64_t kTokens = 9, kWidth = 16, kVocab = 23;
constexpr auto kType = at::kDouble;

at::Tensor values(c10::IntArrayRef size, double scale = 1) {
  at::Tensor x = at::empty(size, kType);
  double* const data = x.data_ptr<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i) data[i] = scale * (static_cast<double>((i * 7919 + 13) % 101) / 50.5 - 1);
  return x;
}

/// Makes an operation's operands on a device.
class Place {
 public:
  explicit Place(c10::Device device) : device(device), workspace(device) {}
  at::Tensor in(c10::IntArrayRef size, double scale = 1) const { return values(size, scale).to(device); }
  at::Tensor out(c10::IntArrayRef size) const { return at::zeros(size, at::TensorOptions(device).dtype(kType)); }
  at::Tensor whole(std::vector<std::int64_t> numbers, c10::ScalarType type = at::kInt) const {
    return at::tensor(numbers, at::kLong).to(type).to(device);
  }

  c10::Device device;
  ops::Workspace workspace;
};

class QftOperations : public Sim {
 protected:
  /// Expects that `work` returns the same on both devices.
  static void expect_same(const std::function<std::vector<at::Tensor>(Place&)>& work) {
    Place host(c10::kCPU), there(device());
    const auto expected = work(host), got = work(there);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(got[i].is_privateuseone());
      EXPECT_TRUE(at::allclose(got[i].cpu(), expected[i], 1e-12, 1e-12)) << "result " << i;
    }
  }
};

TEST_F(QftOperations, Norm) {
  expect_same([](Place& p) {
    const at::Tensor x = p.in({kTokens, kWidth}), w = p.in({kWidth}), y = p.out({kTokens, kWidth}), rstd = p.out({kTokens});
    const at::Tensor gx = p.in({kTokens, kWidth}, 0.5), gw = p.out({kWidth});
    ops::rms_norm_forward(x, w, 1e-6, y, rstd);
    ops::rms_norm_backward({.gy = y, .x = x, .weight = w, .rstd = rstd, .residual_grad = gx, .gx = gx, .gweight = gw},
                           p.workspace);
    return std::vector{y, rstd, gx, gw};
  });
}

TEST_F(QftOperations, RotaryEmbedding) {
  expect_same([](Place& p) {
    const std::vector<double> frequencies{1, 0.1, 0.01, 0.001};
    const auto table = ops::RopeTable::build(frequencies, 32, kType, p.device);
    const at::Tensor rows = p.in({kTokens, 3 * 8}), heads = ops::heads_view(rows, 0, 2, 8);
    const at::Tensor positions = p.whole({0, 1, 2, 3, 0, 1, 2, 0, 1});
    ops::rope(heads, positions, table, ops::RopeDirection::forward);
    const at::Tensor turned = rows.clone();
    ops::rope(heads, positions, table, ops::RopeDirection::backward);
    return std::vector{turned, rows};
  });
}

TEST_F(QftOperations, SwiGlu) {
  expect_same([](Place& p) {
    const at::Tensor gate_up = p.in({kTokens, 2 * kWidth}), act = p.out({kTokens, kWidth}), gact = p.in({kTokens, kWidth}, 0.3);
    ops::swiglu_forward(gate_up, act);
    const at::Tensor forward = act.clone(), ggate_up = p.out({kTokens, 2 * kWidth});
    ops::swiglu_backward(gate_up, gact, ggate_up, act);
    return std::vector{forward, ggate_up, act};
  });
}

TEST_F(QftOperations, LinearWithLoraAndDropout) {
  expect_same([](Place& p) {
    const at::Tensor x = p.in({kTokens, kWidth}), y = p.out({kTokens, 12}), gx = p.out({kTokens, kWidth});
    ops::LinearWeights w{p.in({12, kWidth}), p.in({12}), {{p.in({4, kWidth}), p.in({6, 4}), 6, 6, 2.0, 1}}};
    const ops::LinearGrads grads{p.out({12, kWidth}), p.out({12}), {{p.out({4, kWidth}), p.out({6, 4})}}};
    const ops::LoraDropout dropout{
        0.25, {1, 2, 3, 4}, {p.whole({5, 5, 5, 5, 6, 6, 6, 7, 7}, at::kLong), p.whole({0, 1, 2, 3, 0, 1, 2, 0, 1})}};
    const at::Tensor saved = p.out({kTokens, ops::lora_saved_columns(w)});
    ops::linear_forward(x, w, dropout, y, saved, p.workspace);
    ops::linear_backward({.gy = y, .x = x, .saved = saved, .gx = gx, .mode = ops::GradMode::accumulate}, w, dropout, grads,
                         p.workspace);
    return std::vector{y, saved, gx, grads.weight, grads.bias, grads.lora[0].a, grads.lora[0].b};
  });
}

// Outputs beyond a device's cache: LoRA's terms are written before the product that adds to them.
TEST_F(QftOperations, LinearWithLoraAndLargeOutputs) {
  expect_same([](Place& p) {
    constexpr std::int64_t kRows = 64, kWide = 40000, kNarrow = 8;  // 20 MB a side in fp64, 41 MB together
    const at::Tensor x = p.in({kRows, 2 * kWide}), y = p.out({kRows, 2 * kWide}), gx = p.out({kRows, 2 * kWide});
    ops::LinearWeights up{
        p.in({2 * kWide, kNarrow}),
        {},
        {{p.in({2, kNarrow}), p.in({kWide, 2}), 0, kWide, 2.0, 1}, {p.in({2, kNarrow}), p.in({kWide, 2}), kWide, kWide, 2.0, 2}}};
    const at::Tensor few = p.in({kRows, kNarrow}), saved = p.out({kRows, ops::lora_saved_columns(up)});
    ops::linear_forward(few, up, {}, y, saved, p.workspace);
    ops::LinearWeights down{p.in({kNarrow, 2 * kWide}), {}, {{p.in({2, 2 * kWide}), p.in({kNarrow, 2}), 0, kNarrow, 2.0, 1}}};
    const ops::LinearGrads grads{{}, {}, {{p.out({2, 2 * kWide}), p.out({kNarrow, 2})}}};
    const at::Tensor short_saved = p.out({kRows, ops::lora_saved_columns(down)}), result = p.out({kRows, kNarrow});
    ops::linear_forward(x, down, {}, result, short_saved, p.workspace);
    ops::linear_backward({.gy = few, .x = x, .saved = short_saved, .gx = gx}, down, {}, grads, p.workspace);
    return std::vector{y, saved, result, gx, grads.lora[0].a, grads.lora[0].b};
  });
}

TEST_F(QftOperations, EmbeddingAndHead) {
  expect_same([](Place& p) {
    const at::Tensor tokens = p.whole({3, 22, 0, 3, 3, 7, 1, 22, 5}), weight = p.in({kVocab, kWidth}),
                     x = p.out({kTokens, kWidth});
    ops::embedding_forward(tokens, weight, x);
    const ops::HeadLabels labels{p.whole({0, 2, 3, 4, 7}), p.whole({22, 3, 3, 7, 0})};
    const at::Tensor logprobs = p.out({5}), alone = p.out({5}), gx = p.out({kTokens, kWidth}), gw = p.out({kVocab, kWidth});
    ops::head_forward(x, weight, labels, alone, p.workspace, 2);
    ops::head_forward_backward(
        {.x = x, .weight = weight, .labels = labels, .grad_logprobs = p.in({5}), .logprobs = logprobs, .gx = gx, .gweight = gw},
        p.workspace, 2);
    ops::head_backward(x, weight, labels, p.in({5}), gx, gw, p.workspace);
    ops::embedding_backward(tokens, gx, gw);
    return std::vector{x, alone, logprobs, gx, gw};
  });
}

/// The path of a part of the vocabulary: one part that happens to hold all tokens, and one that holds the last tokens.
TEST_F(QftOperations, EmbeddingAndHeadOnAPartOfTheVocabulary) {
  for (const std::int64_t first : {0, 7})
    expect_same([first](Place& p) {
      const auto alone = [](const at::Tensor&) {};
      const ops::VocabularyPart part{.first = first, .whole = first + kVocab, .parts = 2, .add = alone, .maximum = alone};
      const at::Tensor tokens = p.whole({3, 22, 0, 3, 3, 7, 1, 22, 5}), weight = p.in({kVocab, kWidth}),
                       x = p.out({kTokens, kWidth});
      ops::embedding_forward(tokens, weight, x, part);
      const ops::HeadLabels labels{p.whole({0, 2, 3, 4, 7}), p.whole({22, 3, 3, 7, 0})};
      const at::Tensor logprobs = p.out({5}), gx = p.out({kTokens, kWidth}), gw = p.out({kVocab, kWidth});
      std::vector<at::Tensor> results{x, logprobs, gx, gw, p.out({5}), p.out({5, 4}), p.out({5, kVocab})};
      const auto read = [&](const ops::HeadChunk& chunk) {
        results[4].narrow(0, chunk.first, chunk.size()).copy_(chunk.likeliest_tokens());
        results[5].narrow(0, chunk.first, chunk.size()).copy_(chunk.largest_logits(4));
        results[6].narrow(0, chunk.first, chunk.size()).copy_(chunk.log_softmax(chunk.logits, kType));
        return at::Tensor();
      };
      ops::head_forward_backward({.x = x,
                                  .weight = weight,
                                  .labels = labels,
                                  .grad_logprobs = p.in({5}),
                                  .logprobs = logprobs,
                                  .gx = gx,
                                  .gweight = gw,
                                  .vocabulary = part},
                                 p.workspace, 2, {read});
      ops::embedding_backward(tokens, gx, gw, part);
      results.push_back(p.out({kTokens, first + kVocab}));
      ops::head_logits(x, weight, results.back(), p.workspace, part);
      return results;
    });
}

// Gradient sums of the head: of fp16 or bf16 values, in fp32, as on CUDA.
TEST_F(QftOperations, TokenSumsOfHalvesAreOneProduct) {
  Place host(c10::kCPU), there(device());
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor a = values({3, 2100}).to(type), b = values({3, 1040}, 0.3).to(type),
                     before = values({2100, 1040}).to(at::kFloat);
    const at::Tensor out = before.to(device()), a_there = a.to(device()), b_there = b.to(device());
    const std::int64_t queued = counters().queued;
    ops::add_token_sums(std::vector<ops::TokenSum>{{out, a_there, b_there}}, there.workspace);
    EXPECT_EQ(counters().queued - queued, 1);
    EXPECT_EQ(there.workspace.bytes_in_use(), 0);
    const at::Tensor exact = before.to(kType) + at::mm(a.to(kType).t(), b.to(kType));
    EXPECT_TRUE(at::allclose(out.cpu().to(kType), exact, 1e-6, 1e-6)) << type;
    // Transposed, and columns of a wider sum, as for LoRA's factors.
    const at::Tensor wide = at::zeros({1040, 2200}, on_device());
    ops::add_token_sums(std::vector<ops::TokenSum>{{wide.narrow(1, 50, 2100).t(), a_there, b_there}}, there.workspace);
    EXPECT_TRUE(at::allclose(wide.narrow(1, 50, 2100).t().cpu().to(kType), exact - before.to(kType), 1e-6, 1e-6)) << type;
    EXPECT_EQ(wide.cpu().narrow(1, 0, 50).abs().max().item<float>(), 0.0F);
  }
}

TEST_F(QftOperations, Attention) {
  for (const std::int64_t window : {0, 2})
    expect_same([window](Place& p) {
      const at::Tensor qkv = p.in({kTokens, 8 * 4}), gqkv = p.out({kTokens, 8 * 4}), out = p.out({kTokens, 4 * 4}),
                       lse = p.out({4, kTokens});
      const std::vector<std::int32_t> boundaries{0, 4, 4, 7, 9};
      const auto sequences = ops::PackedSequences::build(boundaries, p.device);
      const ops::AttentionOptions options{0.5, window};
      ops::attention_forward(ops::split_qkv(qkv, 4, 2, 4), sequences, options, out, lse, p.workspace,
                             ops::AttentionKernel::reference);
      ops::attention_backward(
          {.gout = out, .in = ops::split_qkv(qkv, 4, 2, 4), .out = out, .lse = lse, .grads = ops::split_qkv(gqkv, 4, 2, 4)},
          sequences, options, p.workspace, ops::AttentionKernel::reference);
      return std::vector{out, lse, gqkv};
    });
}

TEST_F(QftOperations, ValuesAreUploadedThroughPinnedMemory) {
  const std::vector<std::int32_t> all{1, 2, 3};
  const std::int64_t before = pageable_bytes();
  const at::Tensor there = device::upload(all, device());
  EXPECT_EQ(pageable_bytes(), before);
  EXPECT_TRUE(there.cpu().equal(at::tensor(all, at::kInt)));
}

}  // namespace
}  // namespace qft::sim
