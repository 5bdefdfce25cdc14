// Times every model operation at SmolLM2-135M's shapes against its plain ATen form, and the decoding of quantised weights against
// the product that follows. Usage: bench_ops [tokens=512] [float|bfloat16] [threads] [roofline [WORK ...] | experts | delta].
// Times are the minimum over many runs, in milliseconds. `roofline`: prints JSON with the seconds that a step's matrix products
// need, a lower bound for programs that use such products on this machine. The bound omits LoRA's products, counts attention at
// the products' rate, and runs bf16 products as bf16 or fp32, whichever is faster. WORK describes another model than
// SmolLM2-135M: ROWS:INPUTS:OUTPUTS:TIMES per product, attention:WIDTH:LAYERS and head:HIDDEN:VOCABULARY (bench/train.py makes
// them from a config.json). `experts`: linears of 32 experts at Qwen3-30B-A3B's size against one linear with the same number of
// rows. `delta`: one layer's gated delta rule at Qwen3.5-0.8B's size.
#include "qft/ops/activation.h"
#include "qft/ops/attention.h"
#include "qft/ops/embedding.h"
#include "qft/ops/experts.h"
#include "qft/ops/gated_delta.h"
#include "qft/ops/generic.h"
#include "qft/ops/head.h"
#include "qft/ops/linear.h"
#include "qft/ops/matmul_choice.h"
#include "qft/ops/norm.h"
#include "qft/ops/quantized.h"
#include "qft/ops/rope.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/zeros.h>

namespace {

using namespace qft::ops;

constexpr std::int64_t kHidden = 576, kHeads = 9, kKvHeads = 3, kHeadDim = 64, kWidth = 1536, kVocab = 49152;
constexpr std::int64_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim, kRank = 8;

/// Returns milliseconds; with one thread its CPU time, which other processes disturb least.
double now() {
  if (at::get_num_threads() == 1) {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
  }
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns the minimum time of repeated calls, in ms.
double least_time(const std::function<void()>& f) {
  double least = std::numeric_limits<double>::infinity(), total = 0;
  f();
  for (int i = 0; i < 400 && (total < 1500 || i < 5); ++i) {
    const double start = now();
    f();
    const double ms = now() - start;
    least = std::min(least, ms);
    total += ms;
  }
  return least;
}

void report(const char* name, const std::function<void()>& ours, const std::function<void()>& generic) {
  const double a = least_time(ours);
  if (!generic) return void(std::printf("%-28s %9.3f\n", name, a));
  const double b = least_time(generic);
  std::printf("%-28s %9.3f %9.3f %7.1fx\n", name, a, b, b / a);
  std::fflush(stdout);
}

/// The products of a step's forward pass.
struct Work {
  struct Product {
    std::int64_t rows, inputs, outputs, times;
  };
  std::vector<Product> products;
  std::int64_t attention = 0;  ///< columns, summed over all heads of all layers
  std::int64_t hidden = kHidden, vocabulary = kVocab;

  static Work smollm2(std::int64_t tokens) {
    constexpr std::int64_t kLayers = 30;
    Work work;
    for (const auto& [inputs, outputs] :
         {std::pair{kHidden, kQkv}, {kHeads * kHeadDim, kHidden}, {kHidden, 2 * kWidth}, {kWidth, kHidden}})
      work.products.push_back({tokens, inputs, outputs, kLayers});
    work.attention = kLayers * kHeads * kHeadDim;
    return work;
  }
  /// Parses an argument; returns false if it is invalid.
  bool read(const char* text) {
    long long a = 0, b = 0, c = 0, d = 0;
    if (std::sscanf(text, "attention:%lld:%lld", &a, &b) == 2) return attention += a * b, true;
    if (std::sscanf(text, "head:%lld:%lld", &a, &b) == 2) return hidden = a, vocabulary = b, true;
    if (std::sscanf(text, "%lld:%lld:%lld:%lld", &a, &b, &c, &d) != 4) return false;
    return products.push_back({a, b, c, d}), true;
  }
};

class Bench {
 public:
  Bench(std::int64_t tokens, at::ScalarType dtype) : tokens_(tokens), dtype_(dtype) {
    positions_ = at::arange(tokens, at::kInt);
    std::vector<double> frequencies;
    for (std::int64_t i = 0; i < kHeadDim; i += 2) frequencies.push_back(std::pow(1e5, -double(i) / kHeadDim));
    table_ = RopeTable::build(frequencies, tokens, dtype, at::kCPU);
  }

  void run() {
    norm();
    elementwise();
    attention();
    linear("linear qkv + lora", kHidden, {576, 192, 192});
    linear("linear o + lora", kHeads * kHeadDim, {kHidden});
    linear("linear gate, up + lora", kHidden, {kWidth, kWidth});
    linear("linear down + lora", kWidth, {kHidden});
    head();
    embedding();
    decoding();
  }

  void roofline(const Work& work) {
    double layers_ms = 0, layers_flops = 0;
    for (const auto& [rows, inputs, outputs, times] : work.products) {
      layers_ms += static_cast<double>(times) * product_ms(rows, inputs, outputs);
      layers_flops += 2.0 * static_cast<double>(times * rows) * static_cast<double>(inputs * outputs);
    }
    const std::int64_t rows = std::min(tokens_, head_chunk_rows(work.vocabulary));
    const double head_ms = product_ms(rows, work.hidden, work.vocabulary) * double(tokens_) / double(rows);
    // Causal: half of 4 T^2 d forward; the backward pass has five products instead of two.
    const double attention_ms = 2.0 * double(tokens_) * double(tokens_) * double(work.attention) * layers_ms / layers_flops;
    const double forward = layers_ms + attention_ms + head_ms, inputs = layers_ms + 2.5 * attention_ms + head_ms;
    std::printf("{\"forward\": %.4f, \"input_gradients\": %.4f, \"weight_gradients\": %.4f, \"gflops\": %.0f}\n", forward * 1e-3,
                inputs * 1e-3, (layers_ms + head_ms) * 1e-3, layers_flops / layers_ms * 1e-6);
  }

  /// Times grouped products against one dense product with the same number of rows.
  void experts() {
    constexpr std::int64_t kExperts = 32, kModel = 2048, kInner = 768;
    std::printf("%-28s %9s %9s %8s\n", "rows an expert", "grouped", "dense", "of rate");
    for (const std::int64_t rows : {64, 256})
      for (const auto& [inputs, outputs] : {std::pair{kModel, 2 * kInner}, {kInner, kModel}}) {
        ExpertRows dealt;
        for (std::int64_t e = 0; e <= kExperts; ++e) dealt.begins.push_back(e * rows);
        const at::Tensor x = random({dealt.count(), inputs}), y = random({dealt.count(), outputs}), gx = random(x.sizes());
        const LinearWeights stack{random({kExperts, outputs, inputs}), {}, {}}, dense{stack.weight[0], {}, {}};
        const auto compare = [&](const char* way, const std::function<void()>& grouped, const std::function<void()>& one) {
          const double a = least_time(grouped), b = least_time(one);
          std::printf("%5lld, %4lld to %4lld, %-8s %9.2f %9.2f %7.0f%%\n", static_cast<long long>(rows),
                      static_cast<long long>(inputs), static_cast<long long>(outputs), way, a, b, 100.0 * b / a);
          std::fflush(stdout);
        };
        compare(
            "forward", [&] { experts_forward(dealt, x, stack, 0, {}, y, {}, workspace_); },
            [&] { linear_forward(x, dense, {}, y, {}, workspace_); });
        compare(
            "backward", [&] { experts_backward(dealt, {.gy = y, .x = x, .gx = gx}, stack, 0, {}, {}, workspace_); },
            [&] { linear_backward({.gy = y, .x = x, .gx = gx}, dense, {}, {}, workspace_); });
      }
  }

  void delta() {
    constexpr DeltaShape kShape{16, 16, 128, 128};
    const std::vector<std::int32_t> bounds = {0, static_cast<std::int32_t>(tokens_)};
    const PackedSequences packed = PackedSequences::build(bounds, at::kCPU);
    const auto operands = [&] {
      const std::vector<std::int64_t> shape = {tokens_, kShape.key_heads, kShape.key_dim};
      return GatedDeltaTensors{random(shape), random(shape), random(shape), floats({tokens_, kShape.value_heads}).fill_(-0.1),
                               floats({tokens_, kShape.value_heads}).fill_(0.5)};
    };
    const GatedDeltaTensors in = operands(), grads = operands();
    const at::Tensor out = random(in.v.sizes());
    const at::Tensor states = floats({kept_delta_states(packed), kShape.value_heads, kShape.key_dim, kShape.value_dim});
    report("gated delta rule forward", [&] { gated_delta_forward(in, packed, out, states, workspace_); }, nullptr);
    report("gated delta rule backward", [&] { gated_delta_backward(out, in, states, packed, grads, workspace_); }, nullptr);
  }

 private:
  double product_ms(std::int64_t rows, std::int64_t inputs, std::int64_t outputs) const {
    const at::Tensor x = random({rows, inputs}), w = random({outputs, inputs});
    at::Tensor y = random({rows, outputs});
    const double as_given = least_time([&] { at::mm_out(y, x, w.t()); });
    if (dtype_ == at::kFloat) return as_given;
    const at::Tensor wide_x = x.to(at::kFloat), wide_w = w.to(at::kFloat);
    at::Tensor wide_y = y.to(at::kFloat);
    return std::min(as_given, least_time([&] { at::mm_out(wide_y, wide_x, wide_w.t()); }));
  }

  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape, at::kFloat).to(dtype_); }
  at::Tensor floats(at::IntArrayRef shape) const { return at::zeros(shape, at::kFloat); }

  void norm() {
    const at::Tensor x = random({tokens_, kHidden}), w = random({kHidden}), y = random({tokens_, kHidden});
    const at::Tensor rstd = floats({tokens_}), gx = random({tokens_, kHidden}), gw = floats({kHidden});
    report(
        "rms_norm forward", [&] { rms_norm_forward(x, w, 1e-5, y, rstd); },
        [&] { generic::rms_norm_forward(x, w, 1e-5, y, rstd); });
    report(
        "rms_norm backward",
        [&] { rms_norm_backward({.gy = y, .x = x, .weight = w, .rstd = rstd, .residual_grad = x, .gx = gx}, workspace_); },
        [&] { generic::rms_norm_backward({.gy = y, .x = x, .weight = w, .rstd = rstd, .residual_grad = x, .gx = gx}); });
    report(
        "rms_norm backward + weight",
        [&] {
          rms_norm_backward({.gy = y, .x = x, .weight = w, .rstd = rstd, .residual_grad = x, .gx = gx, .gweight = gw},
                            workspace_);
        },
        [&] {
          generic::rms_norm_backward({.gy = y, .x = x, .weight = w, .rstd = rstd, .residual_grad = x, .gx = gx, .gweight = gw});
        });
  }

  void elementwise() {
    const at::Tensor qkv = random({tokens_, kQkv}), qk = heads_view(qkv, 0, kHeads + kKvHeads, kHeadDim);
    report(
        "rope", [&] { rope(qk, positions_, table_, RopeDirection::forward); },
        [&] { generic::rope(qk, positions_, table_, RopeDirection::forward); });
    const at::Tensor gate_up = random({tokens_, 2 * kWidth}), act = random({tokens_, kWidth});
    const at::Tensor grad = random({tokens_, 2 * kWidth}), again = random({tokens_, kWidth});
    report("swiglu forward", [&] { swiglu_forward(gate_up, act); }, [&] { generic::swiglu_forward(gate_up, act); });
    report(
        "swiglu backward + act", [&] { swiglu_backward(gate_up, act, grad, again); },
        [&] { generic::swiglu_backward(gate_up, act, grad, again); });
    const RowIdentity rows{at::zeros({tokens_}, at::kLong), positions_};
    const at::Tensor x = random({tokens_, kHidden}), y = random({tokens_, kHidden});
    report(
        "dropout", [&] { dropout_forward(x, {1, 2, 3, 4}, rows, 0.1, y); },
        [&] { y.copy_(generic::dropout(x, {1, 2, 3, 4}, rows, 0.1)); });
  }

  void attention() {
    const std::vector<std::int32_t> bounds = {0, static_cast<std::int32_t>(tokens_)};
    const PackedSequences packed = PackedSequences::build(bounds, at::kCPU);
    const at::Tensor qkv = random({tokens_, kQkv}), gqkv = random({tokens_, kQkv});
    const at::Tensor out = random({tokens_, kHeads * kHeadDim}), gout = random(out.sizes());
    const at::Tensor lse = floats({kHeads, tokens_});
    const QkvViews in = split_qkv(qkv, kHeads, kKvHeads, kHeadDim), grads = split_qkv(gqkv, kHeads, kKvHeads, kHeadDim);
    const auto both = [&](const std::string& name, const AttentionOptions& options) {
      const auto forward = [&](AttentionKernel kernel) {
        return [&, kernel] { attention_forward(in, packed, options, out, lse, workspace_, kernel); };
      };
      const auto backward = [&](AttentionKernel kernel) {
        return [&, kernel] {
          attention_backward({.gout = gout, .in = in, .out = out, .lse = lse, .grads = grads}, packed, options, workspace_,
                             kernel);
        };
      };
      report((name + " forward").c_str(), forward(AttentionKernel::automatic), forward(AttentionKernel::sdpa));
      report((name + " backward").c_str(), backward(AttentionKernel::automatic), backward(AttentionKernel::sdpa));
    };
    both("attention", {0.125});
    both("windowed attention", {0.125, std::max<std::int64_t>(1, tokens_ / 8)});
  }

  void linear(const char* name, std::int64_t inputs, const std::vector<std::int64_t>& modules) {
    std::int64_t total = 0;
    for (const std::int64_t rows : modules) total += rows;
    const auto parts = static_cast<std::int64_t>(modules.size());
    LinearWeights w{random({total, inputs}), {}, {}}, base = w;
    LinearGrads grads;
    const at::Tensor a = random({parts * kRank, inputs});
    std::int64_t row0 = 0;
    for (std::int64_t i = 0; i < parts; ++i) {
      const std::int64_t rows = modules[static_cast<std::size_t>(i)];
      w.lora.push_back({a.narrow(0, i * kRank, kRank), random({rows, kRank}), row0, rows, 2.0, 0});
      grads.lora.push_back({floats({kRank, inputs}), floats({rows, kRank})});
      row0 += rows;
    }
    const at::Tensor x = random({tokens_, inputs}), y = random({tokens_, total}), gx = random({tokens_, inputs});
    const at::Tensor saved = random({tokens_, parts * kRank});
    // Against the base matmul alone, to show LoRA's overhead.
    report((std::string(name) + " fwd").c_str(), [&] { linear_forward(x, w, {}, y, saved, workspace_); },
           [&] { linear_forward(x, base, {}, y, {}, workspace_); });
    report((std::string(name) + " bwd").c_str(),
           [&] { linear_backward({.gy = y, .x = x, .saved = saved, .gx = gx}, w, {}, grads, workspace_); },
           [&] { linear_backward({.gy = y, .x = x, .gx = gx}, base, {}, {}, workspace_); });
    LinearGrads full{floats({total, inputs}), {}, {}};
    report((std::string(name) + " full bwd").c_str(),
           [&] { linear_backward({.gy = y, .x = x, .gx = gx}, base, {}, full, workspace_); }, nullptr);
  }

  void head() {
    // Scaled so that probabilities resemble a trained model's.
    const at::Tensor x = random({tokens_, kHidden}), w = random({kVocab, kHidden}).mul_(0.1), gx = random({tokens_, kHidden});
    const HeadLabels labels{positions_, positions_};
    const at::Tensor logprobs = floats({tokens_}), grad = floats({tokens_}).fill_(-0.01);
    at::Tensor logits = random({std::min(tokens_, head_chunk_rows(kVocab)), kVocab});
    report(
        "head forward + backward",
        [&] {
          head_forward_backward({.x = x, .weight = w, .labels = labels, .grad_logprobs = grad, .logprobs = logprobs, .gx = gx},
                                workspace_);
        },
        nullptr);
    const at::Tensor gw = floats(w.sizes());
    report(
        "  with weight gradient",
        [&] {
          head_forward_backward(
              {.x = x, .weight = w, .labels = labels, .grad_logprobs = grad, .logprobs = logprobs, .gx = gx, .gweight = gw},
              workspace_);
        },
        nullptr);
    const std::int64_t n = logits.size(0);
    report("  its matmul, one chunk", [&] { at::mm_out(logits, x.narrow(0, 0, n), w.t()); }, nullptr);
    report(
        "  generic softmax, one chunk",
        [&] { generic::cross_entropy_rows(logits, positions_.narrow(0, 0, n), grad.narrow(0, 0, n), logprobs.narrow(0, 0, n)); },
        nullptr);
  }

  void embedding() {
    const at::Tensor gw = floats({kVocab, kHidden}), gy = random({tokens_, kHidden});
    report(
        "embedding backward", [&] { embedding_backward(positions_, gy, gw); },
        [&] { gw.index_add_(0, positions_, gy.to(at::kFloat)); });
  }

  /// Decodes quantised weights, next to their product with the tokens: an acquire has at least one such product.
  void decoding() {
    constexpr std::int64_t kSize = 2048;
    const at::Tensor x = random({tokens_, kSize}), out = random({kSize * kSize}), w = out.view({kSize, kSize});
    at::Tensor y = random({tokens_, kSize});
    for (const Quantization& kind : {Quantization{QuantFormat::nf4},
                                     {QuantFormat::nf4, true},
                                     {QuantFormat::int8},
                                     {QuantFormat::fp8},
                                     {.format = QuantFormat::fp8, .columns = 128, .tile_rows = 128},
                                     {.format = QuantFormat::groups4, .columns = 128},
                                     {.format = QuantFormat::groups4, .columns = 128, .ordered = true},
                                     {.format = QuantFormat::groups8, .columns = 128}}) {
      const auto layout = QuantizedLayout::of(kind, kSize, kSize);
      const at::Tensor bytes = at::zeros({layout.bytes}, at::kByte);
      bytes.narrow(0, 0, layout.code_bytes()).random_(0, 127);
      if (!kind.nested) bytes.narrow(0, layout.scales, 4 * layout.blocks()).view(at::kFloat).fill_(0.01);
      if (kind.ordered) bytes.narrow(0, layout.order, 4 * kSize).view(at::kInt).copy_(at::randperm(kSize));
      report(describe(kind).c_str(), [&] { dequantize(bytes, layout, out); }, [&] { at::mm_out(y, x, w.t()); });
    }
  }

  std::int64_t tokens_;
  at::ScalarType dtype_;
  at::Tensor positions_;
  RopeTable table_;
  Workspace workspace_{c10::Device(c10::kCPU)};
};

}  // namespace

int main(int argc, char** argv) {
  const at::NoGradGuard no_grad;
  const std::int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 512;
  const bool bf16 = argc <= 2 || std::string(argv[2]) == "bfloat16";
  if (!bf16) choose_fp32_matmul();
  if (argc > 3) at::set_num_threads(std::atoi(argv[3]));
  if (tokens <= 0 || tokens > (1 << 20)) return std::fprintf(stderr, "tokens must be in [1, 2^20]\n"), 2;
  Bench bench(tokens, bf16 ? at::kBFloat16 : at::kFloat);
  const std::string what = argc > 4 ? argv[4] : "";
  if (what == "roofline") {
    Work work = argc > 5 ? Work() : Work::smollm2(tokens);
    for (int i = 5; i < argc; ++i)
      if (!work.read(argv[i])) return std::fprintf(stderr, "%s is not a valid WORK of roofline\n", argv[i]), 2;
    return bench.roofline(work), 0;
  }
  if (what == "experts") return bench.experts(), 0;
  if (what == "delta") return bench.delta(), 0;
  if (!what.empty()) return std::fprintf(stderr, "%s is unknown: use roofline, experts, delta\n", argv[4]), 2;
  std::printf("%lld tokens, %s, %d threads\n%-28s %9s %9s %8s\n", static_cast<long long>(tokens), bf16 ? "bfloat16" : "float",
              at::get_num_threads(), "operation", "ms", "plain ms", "ratio");
  bench.run();
}
