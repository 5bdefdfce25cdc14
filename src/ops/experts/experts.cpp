#include "qft/ops/experts.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/device/upload.h"

#include <algorithm>
#include <type_traits>

#include "../common/device_kernels.h"
#include "../common/tensors_cpu.h"
#include "experts_grouped_cuda.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

namespace qft::ops {
namespace {

/// Returns rows of a tensor that may be undefined.
at::Tensor rows_if(const at::Tensor& t, std::int64_t first, std::int64_t count) {
  return t.defined() ? t.narrow(0, first, count) : t;
}

GroupedProduct grouped_product_of(const at::Tensor& rows) {
  const DeviceKernels* kernels = device_kernels(rows);
  return kernels == nullptr || rows.size(0) == 0 ? nullptr : kernels->grouped_product;
}

LoraDropout rows_of(LoraDropout dropout, std::int64_t first, std::int64_t count) {
  dropout.rows = {rows_if(dropout.rows.sample_ids, first, count), rows_if(dropout.rows.positions, first, count)};
  return dropout;
}

/// Runs sum_rows() for tokens [begin, end) with kernels.
template <class T>
void sum_tokens(const at::Tensor& rows, const at::Tensor& places, const at::Tensor& out, bool add, std::int64_t begin,
                std::int64_t end) {
  const std::int64_t width = out.size(1), per_token = places.numel() / std::max<std::int64_t>(out.size(0), 1);
  const auto kernels = cpu::add_kernels<T>();
  const auto* place = places.const_data_ptr<std::int64_t>();
  std::vector<float> sums(static_cast<std::size_t>(width));
  constexpr DType type = std::is_same_v<T, float> ? DType::f32 : DType::bf16;
  for (std::int64_t t = begin; t < end; ++t) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    T* to = data<T>(out) + t * width;
    if (add) kernels.add_to_float(sums.data(), to, 1.0F, width);
    for (std::int64_t j = 0; j < per_token; ++j)
      kernels.add_to_float(sums.data(), const_data<T>(rows) + place[t * per_token + j] * width, 1.0F, width);
    from_float(type, sums.data(), sums.size(), reinterpret_cast<char*>(to));
  }
}

}  // namespace

void route_forward(const at::Tensor& logits, bool normalise, const at::Tensor& probabilities, const at::Tensor& log_sums,
                   const at::Tensor& experts, const at::Tensor& weights) {
  at::Tensor all = probabilities, sums = log_sums;
  const at::Tensor wide = logits.to(probabilities.scalar_type());
  at::logsumexp_out(sums, wide, 1);
  at::softmax_out(all, wide, -1);
  auto [values, indices] = at::topk(probabilities, experts.size(1), -1);
  if (normalise) values.div_(values.sum(-1, /*keepdim=*/true));
  experts.copy_(indices);
  weights.copy_(values);
}

void route_backward(const at::Tensor& probabilities, const at::Tensor& experts, bool normalise, const RouteGrads& grads,
                    const at::Tensor& glogits) {
  const at::Tensor index = experts.to(at::kLong);
  at::Tensor gvalues = grads.weights;
  if (normalise) {
    const at::Tensor values = at::gather(probabilities, 1, index), sum = values.sum(1, /*keepdim=*/true);
    gvalues = (gvalues - (gvalues * values).sum(1, /*keepdim=*/true) / sum) / sum;
  }
  const at::Tensor g = grads.probabilities.defined() ? grads.probabilities.clone() : at::zeros_like(probabilities);
  g.scatter_add_(1, index, gvalues);
  at::Tensor inner = (g * probabilities).sum(1, /*keepdim=*/true);
  if (grads.log_sums.defined()) inner = inner - grads.log_sums.unsqueeze(1);
  glogits.copy_(probabilities * (g - inner));
}

ExpertRows group_by_expert(const at::Tensor& experts, std::int64_t count, Workspace& workspace) {
  const std::int64_t rows = experts.numel(), per_token = experts.size(1);
  const at::Tensor chosen = experts.cpu();
  const auto* expert = chosen.const_data_ptr<std::int32_t>();
  ExpertRows grouped_rows;
  grouped_rows.begins.assign(static_cast<std::size_t>(count) + 1, 0);
  for (std::int64_t i = 0; i < rows; ++i) {
    QFT_ASSERT(expert[i] >= 0 && expert[i] < count, "expert {} is out of range: there are {}", expert[i], count);
    ++grouped_rows.begins[static_cast<std::size_t>(expert[i]) + 1];
  }
  for (std::size_t e = 0; e < static_cast<std::size_t>(count); ++e) grouped_rows.begins[e + 1] += grouped_rows.begins[e];
  std::vector<std::int64_t> next(grouped_rows.begins.begin(), grouped_rows.begins.end() - 1),
      tokens(static_cast<std::size_t>(rows)), places(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t row = next[static_cast<std::size_t>(expert[i])]++;
    tokens[static_cast<std::size_t>(row)] = i / per_token;
    places[static_cast<std::size_t>(i)] = row;
  }
  grouped_rows.tokens = workspace.get("experts.tokens", {rows}, at::kLong);
  grouped_rows.places = workspace.get("experts.places", {rows}, at::kLong);
  const auto keep = [&](const std::vector<std::int64_t>& from, const at::Tensor& to) {
    to.copy_(at::from_blob(const_cast<std::int64_t*>(from.data()), {rows}, at::kLong));
  };
  keep(tokens, grouped_rows.tokens);
  keep(places, grouped_rows.places);
  grouped_rows.ends =
      device::upload(std::vector<std::int32_t>(grouped_rows.begins.begin() + 1, grouped_rows.begins.end()), experts.device());
  return grouped_rows;
}

std::int64_t expert_rows_bytes(std::int64_t tokens, std::int64_t per_token) {
  return 2 * tokens * per_token * std::int64_t{sizeof(std::int64_t)};
}

void gather_rows(const at::Tensor& x, const ExpertRows& grouped_rows, const at::Tensor& rows) {
  at::Tensor out = rows;
  at::index_select_out(out, x, 0, grouped_rows.tokens);
}

void sum_rows(const at::Tensor& rows, const ExpertRows& grouped_rows, const at::Tensor& out, GradMode mode) {
  const bool add = mode == GradMode::accumulate;
  const bool done = cpu::with_kernel_type(out, [&]<class T>() {
    cpu::for_rows(out.size(0), rows.numel() / std::max<std::int64_t>(out.size(0), 1),
                  [&](std::int64_t begin, std::int64_t end) { sum_tokens<T>(rows, grouped_rows.places, out, add, begin, end); });
  });
  if (done || out.size(0) == 0) return;
  const auto wide = out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor sums = at::index_select(rows, 0, grouped_rows.places).view({out.size(0), -1, out.size(1)}).sum(1, false, wide);
  out.copy_(add ? sums.add_(out) : sums);
}

LinearWeights expert_of(const LinearWeights& stack, std::int64_t e, std::uint32_t sites) {
  LinearWeights w{stack.weight.select(0, e), {}, {}};
  for (const LoraPart& part : stack.lora)
    w.lora.push_back({part.a.select(0, e), part.b.select(0, e), part.row0, part.rows, part.scaling,
                      part.site + sites * static_cast<std::uint32_t>(e)});
  return w;
}

LinearGrads expert_of(const LinearGrads& stack, std::int64_t e) {
  LinearGrads grads;
  if (stack.weight.defined()) grads.weight = stack.weight.select(0, e);
  for (const LinearGrads::Lora& part : stack.lora) grads.lora.push_back({part.a.select(0, e), part.b.select(0, e)});
  return grads;
}

void experts_forward(const ExpertRows& grouped_rows, const at::Tensor& x, const LinearWeights& stack, std::uint32_t sites,
                     const LoraDropout& dropout, const at::Tensor& y, const at::Tensor& saved, Workspace& workspace) {
  if (grouped_forward(grouped_product_of(x), grouped_rows, x, stack, dropout, y, saved)) return;
  for_each_expert(grouped_rows, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
    linear_forward(x.narrow(0, first, count), expert_of(stack, e, sites), rows_of(dropout, first, count),
                   y.narrow(0, first, count), rows_if(saved, first, count), workspace);
  });
}

void experts_backward(const ExpertRows& grouped_rows, const LinearBackward& t, const LinearWeights& stack, std::uint32_t sites,
                      const LoraDropout& dropout, const LinearGrads& grads, Workspace& workspace) {
  if (grouped_backward(grouped_product_of(t.gy), grouped_rows, t, stack, dropout, grads, workspace)) return;
  for_each_expert(grouped_rows, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
    linear_backward({.gy = t.gy.narrow(0, first, count),
                     .x = rows_if(t.x, first, count),
                     .saved = rows_if(t.saved, first, count),
                     .gx = rows_if(t.gx, first, count),
                     .mode = t.mode},
                    expert_of(stack, e, sites), rows_of(dropout, first, count), expert_of(grads, e), workspace);
  });
}

RowIdentity expert_row_identity(const RowIdentity& tokens, const ExpertRows& grouped_rows) {
  if (!tokens.sample_ids.defined()) return {};
  return {at::index_select(tokens.sample_ids, 0, grouped_rows.tokens),
          at::index_select(tokens.positions, 0, grouped_rows.tokens)};
}

}  // namespace qft::ops
