#include "layers_here.h"

#include "qft/core/error.h"
#include "qft/ops/activation.h"
#include "qft/ops/norm.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace qft::plan {
namespace {

using namespace model;

/// Larger than the caches of a core or a GPU.
constexpr std::int64_t kOutOfCache = std::int64_t{256} << 20;

ModelSpec few_layers(const ModelSpec& whole, const optim::Precision& precision) {
  const auto bytes =
      std::max<std::int64_t>(1, whole.units[1].bytes(static_cast<std::int64_t>(c10::elementSize(precision.compute))));
  ModelConfig config = whole.config;
  if (config.experts.count > 0) {  // dense layers with the work of the experts that one token uses
    config.intermediate_size = config.experts.per_token * config.experts.intermediate_size + config.experts.shared_size;
    config.experts = {};
    config.sparse.clear();
  }
  if (!config.recurrent.empty()) {  // plain attention in every layer, as in other models
    config.recurrent.clear();
    config.attention_gate = false;
    config.rope.partial = 1.0;
  }
  config.num_layers = std::clamp<std::int64_t>(kOutOfCache / bytes, 1, std::min<std::int64_t>(8, whole.config.num_layers));
  // all layers like the first, as the prediction assumes
  config.windows.assign(static_cast<std::size_t>(config.num_layers), whole.config.window(0));
  AdapterConfig adapter = whole.adapter;
  adapter.lora.target_parameters.clear();
  // layers that train, even if only some do
  const Finetuning method = adapter.enabled() ? Finetuning::adapter : Finetuning::full;
  ModelSpec few = ModelSpec::build(config, method, adapter, WeightStorage::in({}), whole.head);
  if (!adapter.enabled() || (few.num_params(true) > 0 && whole.adapter.lora.target_parameters.empty())) return few;
  adapter.targets().set_targets("all");
  return ModelSpec::build(config, method, adapter, WeightStorage::in({}), whole.head);
}

MicroInput input_of(const ModelSpec& spec, const MeasureOptions& o, c10::Device device) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(o.tokens)), bounds, labels;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(spec.config.vocab_size));
  for (std::int64_t t = 0; t < o.tokens; t += o.sequence) bounds.push_back(static_cast<std::int32_t>(t));
  bounds.push_back(static_cast<std::int32_t>(o.tokens));
  for (std::int64_t t = 0; t < o.tokens && static_cast<std::int64_t>(labels.size()) < o.labels; ++t)
    if (t % o.sequence != 0) labels.push_back(static_cast<std::int32_t>(t));
  return MicroInput::build(tokens, bounds, labels, {}, device);
}

}  // namespace

SampleLayers::SampleLayers(const ModelSpec& spec, const optim::Precision& precision, c10::Device device,
                           const MeasureOptions& options)
    : spec_(few_layers(spec, precision)),
      precision_(precision),
      device_(device),
      input_(input_of(spec_, options, device)),
      transformer_(std::make_unique<Transformer>(spec_, precision.compute, device)),
      arena_(device) {
  transformer_->ensure_positions(input_.sequences.max_length);
  input_.angles = transformer_->dynamic_angles(input_, arena_);
  const auto grads = at::TensorOptions().dtype(precision.grad).device(device);
  for (int layer = 0; layer < static_cast<int>(spec_.config.num_layers); ++layer) {
    const auto& unit = spec_.units[static_cast<std::size_t>(layer) + 1];
    Layer l;
    if (unit.frozen_numel > 0) l.flat.frozen = random({unit.frozen_numel});
    if (unit.trainable_numel > 0) {
      l.flat.trainable = random({unit.trainable_numel});
      l.flat.grad = at::zeros({unit.trainable_numel}, grads);
    }
    if (unit.derived_numel > 0) {
      l.flat.derived =
          at::zeros({unit.derived_numel}, at::TensorOptions().dtype(transformer_->statistics_dtype()).device(device));
      derive_values(spec_, unit, l.flat);
    }
    l.weights = bind_layer(spec_, unit, l.flat);
    l.base = bind_layer(spec_, unit, l.flat, /*adapter=*/false);
    layers_.push_back(std::move(l));
  }
  make_buffers();
}

at::Tensor SampleLayers::random(at::IntArrayRef shape) const {
  return at::randn(shape, at::TensorOptions().dtype(at::kFloat).device(device_)).mul_(0.02).to(precision_.compute);
}

void SampleLayers::make_buffers() {
  const auto& c = spec_.config;
  const std::int64_t tokens = input_.num_tokens();
  const auto statistics = at::TensorOptions().dtype(transformer_->statistics_dtype()).device(device_);
  const bool trained = spec_.finetuning == Finetuning::full;
  const auto weight = [&](at::IntArrayRef shape, bool trains) -> Weight {
    const auto grads = at::TensorOptions().dtype(precision_.grad).device(device_);
    return {random(shape), trains ? at::zeros(shape, grads) : at::Tensor()};
  };
  const bool linear = spec_.head.has_linear();
  head_.norm = weight({c.hidden_size}, trained);
  if (linear || spec_.head.reads_tokens())
    head_.table = weight({linear ? spec_.head.values : c.vocab_size, c.hidden_size}, trained || linear);
  if (linear && !spec_.head.classifies()) head_.bias = weight({1}, true);
  x_ = random({tokens, c.hidden_size});
  y_ = random({tokens, c.hidden_size});
  g_ = random({tokens, c.hidden_size});
  qkv_ = random({tokens, c.qkv_size()});
  attention_ = random({tokens, c.q_size()});
  lse_ = at::zeros({c.num_heads, tokens}, statistics);
  inner_ = random({tokens, (c.feed_forward == FeedForward::swiglu ? 2 : 1) * c.intermediate_size});
  act_ = random({tokens, c.intermediate_size});
  rstd_ = at::zeros({tokens}, statistics);
  norm_weight_ = random({c.hidden_size});
  std::int64_t in = 0, out = 0, columns = 1;
  for (int i = 0; i < projections_of_a_layer(); ++i) {
    const ParamGroup& group = *place_of(i).group;
    in = std::max(in, group.in());
    out = std::max(out, group.out());
    std::int64_t saved = 0;
    for (const LoraRows& part : group.lora) saved += part.saved_columns();
    columns = std::max(columns, saved);
  }
  rows_ = random({tokens * in});
  out_rows_ = random({tokens * out});
  saved_ = random({tokens, columns});
  head_values_ = at::zeros({transformer_->head_values(input_)}, statistics);
  grad_head_values_ = at::zeros_like(head_values_).fill_(-1e-3);
}

SampleLayers::Place SampleLayers::place_of(int index) const {
  const model::Layer& layer = spec_.layers.front();
  for (std::size_t s = 0; s < layer.size(); ++s) {
    const auto groups = layer[s].linears();
    if (index < static_cast<int>(groups.size()))
      return {s, static_cast<std::size_t>(index), groups[static_cast<std::size_t>(index)]};
    index -= static_cast<int>(groups.size());
  }
  fail("a layer has no projection {} more", index);
}

int SampleLayers::projections_of_a_layer() const {
  std::size_t count = 0;
  for (const model::SubLayerSpec& sublayer : spec_.layers.front()) count += sublayer.linears().size();
  return static_cast<int>(count);
}

const Projection& SampleLayers::projection(const LayerWeights& w, int index) const {
  const Place place = place_of(index);
  return w[place.sublayer].linears[place.linear];
}

std::string SampleLayers::projection_name(int index) const {
  std::string names;
  for (const LinearSpec& linear : place_of(index).group->linears) names += (names.empty() ? "" : ", ") + linear.name;
  return names;
}

double SampleLayers::projection_operations(int index, bool backward) const {
  const Projection& p = projection(layers_.front().base, index);
  const double once = 2.0 * static_cast<double>(input_.num_tokens()) * static_cast<double>(p.weights.weight.numel());
  return backward && p.grads.weight.defined() ? 2 * once : once;
}

SampleLayers::Sides SampleLayers::sides(int index) const {
  const ParamGroup& group = *place_of(index).group;
  return {rows_.narrow(0, 0, input_.num_tokens() * group.in()).view({-1, group.in()}),
          out_rows_.narrow(0, 0, input_.num_tokens() * group.out()).view({-1, group.out()})};
}

at::Tensor SampleLayers::scratch_like(const char* name, const at::Tensor& t) {
  return transformer_->workspace().get(name, t.sizes(), precision_.compute);
}

void SampleLayers::products_forward(int index) {
  const Sides s = sides(index);
  at::Tensor out = scratch_like("measure.out", s.out);
  for (const Layer& layer : layers_)
    ops::linear_forward(s.in, projection(layer.base, index).weights, {}, out, {}, transformer_->workspace());
}

void SampleLayers::products_backward(int index) {
  const Sides s = sides(index);
  at::Tensor gx = scratch_like("measure.gx", s.in);
  for (const Layer& layer : layers_) {
    const Projection& p = projection(layer.base, index);
    ops::linear_backward({.gy = s.out, .x = s.in, .gx = gx}, p.weights, {}, p.grads, transformer_->workspace());
  }
}

void SampleLayers::projections(bool lora) {
  auto& workspace = transformer_->workspace();
  for (const Layer& layer : layers_) {
    for (int i = 0; i < projections_of_a_layer(); ++i) {
      const Projection& p = projection(lora ? layer.weights : layer.base, i);
      const std::int64_t columns = ops::lora_saved_columns(p.weights);
      const at::Tensor saved = columns > 0 ? saved_.narrow(1, 0, columns).contiguous() : at::Tensor();
      const Sides s = sides(i);
      ops::linear_forward(s.in, p.weights, {}, s.out, saved, workspace);
      ops::linear_backward({.gy = s.out, .x = s.in, .saved = saved, .gx = scratch_like("measure.gx", s.in)}, p.weights, {},
                           p.grads, workspace);
    }
  }
}

ops::AttentionOptions SampleLayers::attention_options() const {
  return {1.0 / std::sqrt(static_cast<double>(spec_.config.head_dim)), spec_.config.window(0)};
}

void SampleLayers::attention_forward() {
  const auto& c = spec_.config;
  const auto in = ops::split_qkv(qkv_, c.num_heads, c.num_kv_heads, c.head_dim);
  for (int i = 0; i < count(); ++i)
    ops::attention_forward(in, input_.sequences, attention_options(), attention_, lse_, transformer_->workspace());
}

void SampleLayers::attention_backward() {
  const auto& c = spec_.config;
  auto& workspace = transformer_->workspace();
  const auto in = ops::split_qkv(qkv_, c.num_heads, c.num_kv_heads, c.head_dim);
  const auto grads = ops::split_qkv(scratch_like("measure.gqkv", qkv_), c.num_heads, c.num_kv_heads, c.head_dim);
  const at::Tensor gout = scratch_like("measure.gout", attention_);
  for (int i = 0; i < count(); ++i)
    ops::attention_backward({.gout = gout, .in = in, .out = attention_, .lse = lse_, .grads = grads}, input_.sequences,
                            attention_options(), workspace);
}

void SampleLayers::elementwise() {
  const auto& c = spec_.config;
  auto& workspace = transformer_->workspace();
  const at::Tensor heads = ops::heads_view(qkv_, 0, c.num_heads + c.num_kv_heads, c.head_dim);
  const at::Tensor ginner = scratch_like("measure.ginner", inner_);
  const bool gated = c.feed_forward == FeedForward::swiglu;
  const auto activate = [&] { gated ? ops::swiglu_forward(inner_, act_) : ops::squared_relu_forward(inner_, act_); };
  const auto norms = [&] {
    for (int i = 0; i < 2; ++i) ops::rms_norm_forward(x_, norm_weight_, c.rms_norm_eps, y_, rstd_);
  };
  const model::Angles angles = input_.angles.value_or(model::Angles{input_.positions, transformer_->rope()});
  for (int layer = 0; layer < count(); ++layer) {
    norms();
    ops::rope(heads, angles.rows, angles.table, ops::RopeDirection::forward);
    activate();
    at::add_out(y_, x_, g_);
    at::add_out(y_, x_, g_);
    norms();
    activate();
    gated ? ops::swiglu_backward(inner_, act_, ginner, {}) : ops::squared_relu_backward(inner_, act_, ginner);
    for (int i = 0; i < 2; ++i)
      ops::rms_norm_backward({.gy = y_, .x = x_, .weight = norm_weight_, .rstd = rstd_, .residual_grad = g_, .gx = g_},
                             workspace);
    ops::rope(heads, angles.rows, angles.table, ops::RopeDirection::backward);
  }
}

void SampleLayers::forward() {
  for (int i = 0; i < count(); ++i) {
    const auto mark = arena_.mark();
    const LayerWeights& w = layers_[static_cast<std::size_t>(i)].weights;
    transformer_->layer_forward(i, w, input_, {}, y_, transformer_->allocate_saved(i, w, x_, arena_));
    arena_.release(mark);
  }
}

void SampleLayers::forward_backward() {
  for (int i = 0; i < count(); ++i) {
    const auto mark = arena_.mark();
    const LayerWeights& w = layers_[static_cast<std::size_t>(i)].weights;
    const LayerSaved saved = transformer_->allocate_saved(i, w, x_, arena_);
    transformer_->layer_forward(i, w, input_, {}, y_, saved);
    g_.fill_(1e-3);
    transformer_->layer_backward(i, w, input_, {}, saved, g_, true);
    arena_.release(mark);
  }
}

void SampleLayers::head() {
  transformer_->head_forward_backward(head_, input_, x_, grad_head_values_, head_values_, g_);
}

}  // namespace qft::plan
