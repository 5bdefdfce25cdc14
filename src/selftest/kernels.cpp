// Checks each of our kernels against the same operation in plain ATen calls, in fp64 on the CPU.
#include "qft/ops/activation.h"
#include "qft/ops/dropout.h"
#include "qft/ops/embedding.h"
#include "qft/ops/generic.h"
#include "qft/ops/norm.h"
#include "qft/ops/rope.h"

#include <cmath>

#include "runner.h"
#include "values.h"
#include <ATen/TensorOperators.h>

namespace qft::selftest {
namespace {

constexpr const char* kKernelsReport =
    "train with 'use_cpu: true' or on other nodes meanwhile; update the driver; if the failure stays, report this line with the "
    "output of qft --version";

constexpr Subject kNormForward{"kernels", "rms_norm forward",
                               "the input of every attention and feed-forward layer is wrong, and so is every loss",
                               kKernelsReport};
constexpr Subject kNormBackward{"kernels", "rms_norm backward",
                                "gradients of all layers below are wrong: the loss falls slowly or not at all", kKernelsReport};
constexpr Subject kRope{"kernels", "rope", "attention sees wrong positions: answers and losses are wrong, most for long texts",
                        kKernelsReport};
constexpr Subject kSwigluForward{"kernels", "swiglu forward", "every feed-forward layer is wrong, and so is every loss",
                                 kKernelsReport};
constexpr Subject kSwigluBackward{"kernels", "swiglu backward",
                                  "gradients of all layers below are wrong: the loss falls slowly or not at all", kKernelsReport};
constexpr Subject kDropout{
    "kernels", "dropout",
    "LoRA with lora_dropout trains on other masks than it computes gradients for, or differs after a resume", kKernelsReport};
constexpr Subject kNoise{"kernels", "embedding noise", "neftune_noise_alpha adds different noise than on other machines",
                         kKernelsReport};
constexpr Subject kEmbedding{"kernels", "embedding backward", "full fine-tuning moves the embeddings of the wrong tokens",
                             kKernelsReport};

/// One row, a prime number of columns, unaligned rows, and the rows of a 7B model.
struct Shape {
  std::int64_t rows, width;
  bool shifted = false;

  std::string text(at::ScalarType type) const {
    return fmt::format("{}, {} x {}{}", name_of(type), rows, width, shifted ? ", not aligned" : "");
  }
};
constexpr Shape kShapes[] = {{1, 331}, {7, 97}, {29, 576, true}, {333, 3584}};
/// Shapes of the feed-forward layer.
constexpr Shape kWideShapes[] = {{1, 331}, {7, 97}, {29, 576, true}, {61, 18944}};

Values::Pair make(Values& values, const Shape& shape, std::int64_t width, double scale = 1.0) {
  return shape.shifted ? values.shifted({shape.rows, width}, 3, scale) : values.normal({shape.rows, width}, scale);
}

void check_norm(Runner& runner, at::ScalarType type, const Shape& shape) {
  constexpr double kEps = 1e-6;
  const Limits& limits = limits_of(type);
  runner.check(kNormForward, shape.text(type), [&](Outcome& out) {
    Values values(runner.device(), type);
    const auto x = shape.shifted ? values.rows(shape.rows, shape.width, 2.0) : values.normal({shape.rows, shape.width}, 2.0);
    const auto w = values.normal({shape.width});
    const at::Tensor y = values.result_buffer({shape.rows, shape.width}),
                     rstd = values.result_buffer({shape.rows}, values.statistics());
    const at::Tensor want = exact_buffer(y.sizes()), want_rstd = exact_buffer(rstd.sizes());
    ops::rms_norm_forward(x.here, w.here, kEps, y, rstd);
    ops::generic::rms_norm_forward(x.exact, w.exact, kEps, want, want_rstd);
    out.compare("the result", y, want, limits.elementwise);
    out.compare("1 / rms", rstd, want_rstd, limits_of(values.statistics()).elementwise);
  });
  runner.check(kNormBackward, shape.text(type), [&](Outcome& out) {
    Values values(runner.device(), type);
    ops::Workspace workspace(runner.device());
    const auto x = shape.shifted ? values.rows(shape.rows, shape.width, 2.0) : values.normal({shape.rows, shape.width}, 2.0);
    const auto gy = values.normal({shape.rows, shape.width}), w = values.normal({shape.width}),
               residual = values.normal({shape.rows, shape.width});
    const at::Tensor want_rstd = exact_buffer({shape.rows}), scratch = exact_buffer(x.exact.sizes());
    ops::generic::rms_norm_forward(x.exact, w.exact, kEps, scratch, want_rstd);
    const at::Tensor rstd = want_rstd.to(values.statistics()).to(runner.device());
    const at::Tensor gx = values.result_buffer(gy.here.sizes()), gw = values.zeros({shape.width}, values.statistics());
    const at::Tensor want = exact_buffer(gx.sizes()), want_gw = exact_buffer(gw.sizes()).zero_();
    ops::rms_norm_backward(
        {.gy = gy.here, .x = x.here, .weight = w.here, .rstd = rstd, .residual_grad = residual.here, .gx = gx, .gweight = gw},
        workspace);
    ops::generic::rms_norm_backward({.gy = gy.exact,
                                     .x = x.exact,
                                     .weight = w.exact,
                                     .rstd = want_rstd,
                                     .residual_grad = residual.exact,
                                     .gx = want,
                                     .gweight = want_gw});
    out.compare("the input's gradient", gx, want, limits.elementwise);
    out.compare("the weight's gradient", gw, want_gw, limits.elementwise);
  });
}

/// Rotates q within fused rows, in both directions.
void check_rope(Runner& runner, at::ScalarType type, std::int64_t tokens, std::int64_t heads, std::int64_t head_dim) {
  runner.check(kRope, fmt::format("{}, {} tokens, {} heads of {}", name_of(type), tokens, heads, head_dim), [&](Outcome& out) {
    Values values(runner.device(), type);
    std::vector<double> frequencies;
    for (std::int64_t i = 0; i < head_dim / 2; ++i)
      frequencies.push_back(std::pow(1e6, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
    const auto table = ops::RopeTable::build(frequencies, 4096, type, runner.device());
    const ops::RopeTable want_table{exact(table.cos), exact(table.sin)};
    const std::vector<std::int32_t> positions = numbers(tokens, 4096);
    for (const auto direction : {ops::RopeDirection::forward, ops::RopeDirection::backward}) {
      const auto x = values.normal({tokens, (heads + 2) * head_dim});
      const auto heads_of = [&](const at::Tensor& rows) {
        return rows.narrow(1, head_dim, heads * head_dim).unflatten(1, {heads, head_dim});
      };
      ops::rope(heads_of(x.here), values.int32s(positions), table, direction);
      ops::generic::rope(heads_of(x.exact), Values(c10::kCPU, type).int32s(positions), want_table, direction);
      out.compare(direction == ops::RopeDirection::forward ? "forward" : "backward", x.here, x.exact,
                  limits_of(type).elementwise);
    }
  });
}

void check_swiglu(Runner& runner, at::ScalarType type, const Shape& shape) {
  const double limit = limits_of(type).elementwise;
  runner.check(kSwigluForward, shape.text(type), [&](Outcome& out) {
    Values values(runner.device(), type);
    const auto gate_up = make(values, shape, 2 * shape.width, 2.0);
    const at::Tensor act = values.result_buffer({shape.rows, shape.width}), want = exact_buffer(act.sizes());
    ops::swiglu_forward(gate_up.here, act);
    ops::generic::swiglu_forward(gate_up.exact, want);
    out.compare("the result", act, want, limit);
  });
  runner.check(kSwigluBackward, shape.text(type), [&](Outcome& out) {
    Values values(runner.device(), type);
    const auto gate_up = make(values, shape, 2 * shape.width, 2.0), gact = make(values, shape, shape.width);
    const at::Tensor grad = values.result_buffer(gate_up.here.sizes()), act = values.result_buffer(gact.here.sizes());
    const at::Tensor want = exact_buffer(grad.sizes()), want_act = exact_buffer(act.sizes());
    ops::swiglu_backward(gate_up.here, gact.here, grad, act);
    ops::generic::swiglu_backward(gate_up.exact, gact.exact, want, want_act);
    out.compare("the gradient", grad, want, limit);
    out.compare("the recomputed result", act, want_act, limit);
  });
}

/// The masks are a function of seed, step, sample and position, so they are the same on every device.
void check_dropout(Runner& runner, at::ScalarType type, const Shape& shape) {
  runner.check(kDropout, shape.text(type), [&](Outcome& out) {
    constexpr double kP = 0.1;
    Values values(runner.device(), type), host(c10::kCPU, type);
    const ops::DropoutKey key{1234567890123, 17, 3, 5};
    std::vector<std::int64_t> samples;
    for (std::int64_t t = 0; t < shape.rows; ++t) samples.push_back((std::int64_t{1} << 33) + 7 * t);
    const auto positions = numbers(shape.rows, 100000);
    const ops::RowIdentity rows{values.int64s(samples), values.int32s(positions)};
    const ops::RowIdentity host_rows{host.int64s(samples), host.int32s(positions)};
    const auto x = make(values, shape, shape.width), g = make(values, shape, shape.width), sum = make(values, shape, shape.width);
    const at::Tensor y = values.result_buffer({shape.rows, shape.width}), again = values.result_buffer(y.sizes());
    ops::dropout_forward(x.here, key, rows, kP, y);
    ops::dropout_backward({x.here, again, g.here, sum.here}, key, rows, kP);
    const at::Tensor want = ops::generic::dropout(x.exact, key, host_rows, kP);
    out.compare("the result", y, want, limits_of(type).elementwise);
    out.compare("the recomputed result", again, want, limits_of(type).elementwise);
    out.compare("the gradient", sum.here, sum.exact + ops::generic::dropout(g.exact, key, host_rows, kP),
                limits_of(type).elementwise);
  });
}

/// The noise on embeddings is the same on every device, too.
void check_noise(Runner& runner, at::ScalarType type, const Shape& shape) {
  runner.check(kNoise, shape.text(type), [&](Outcome& out) {
    constexpr double kAlpha = 5.0;
    Values values(runner.device(), type), host(c10::kCPU, type);
    const ops::DropoutKey key = ops::noise_key(1234567890123, 17);
    std::vector<std::int64_t> samples;
    for (std::int64_t t = 0; t < shape.rows; ++t) samples.push_back((std::int64_t{1} << 33) + 7 * t);
    auto lengths = numbers(shape.rows, 100000);
    for (std::int32_t& length : lengths) ++length;
    const auto positions = numbers(shape.rows, 100000);
    const auto x = make(values, shape, shape.width);
    const at::Tensor want = x.exact.clone();
    ops::add_embedding_noise(x.here, key, {{values.int64s(samples), values.int32s(positions)}, values.int32s(lengths)}, kAlpha);
    ops::generic::add_embedding_noise(want, key, {{host.int64s(samples), host.int32s(positions)}, host.int32s(lengths)}, kAlpha);
    out.compare("the embeddings", x.here, want, limits_of(type).elementwise);
  });
}

void check_embedding(Runner& runner, at::ScalarType type, std::int64_t tokens, std::int64_t vocabulary, std::int64_t width) {
  const std::string setting = fmt::format("{}, {} tokens, {} x {}", name_of(type), tokens, vocabulary, width);
  runner.check(kEmbedding, setting, [&](Outcome& out) {
    Values values(runner.device(), type);
    auto ids = numbers(tokens, vocabulary);
    // many occurrences of one token
    for (std::size_t t = 0; t < ids.size(); t += 2) ids[t] = static_cast<std::int32_t>(vocabulary) - 1;
    const auto gy = values.normal({tokens, width});
    const at::Tensor grad = values.zeros({vocabulary, width}, values.statistics()), want = exact_buffer(grad.sizes()).zero_();
    ops::embedding_backward(values.int32s(ids), gy.here, grad);
    want.index_add_(0, Values(c10::kCPU, type).int32s(ids), gy.exact);
    out.compare("the gradient", grad, want, limits_of(values.statistics()).elementwise);
  });
}

}  // namespace

void check_kernels(Runner& runner) {
  for (const at::ScalarType type : runner.checked_types()) {
    for (const Shape& shape : kShapes) check_norm(runner, type, shape);
    check_rope(runner, type, 1, 1, 64);
    check_rope(runner, type, 37, 3, 80);
    check_rope(runner, type, 333, 28, 128);
    for (const Shape& shape : kWideShapes) check_swiglu(runner, type, shape);
    for (const Shape& shape : kShapes) check_dropout(runner, type, shape);
    for (const Shape& shape : kShapes) check_noise(runner, type, shape);
    check_embedding(runner, type, 1, 11, 17);
    check_embedding(runner, type, 1999, 151936, 24);
  }
}

}  // namespace qft::selftest
