// A transformer layer: its sub-layers one after another, each x + sub(norm(x)) or x + norm(sub(x)).
#include "qft/model/transformer.h"
#include "qft/ops/norm.h"

namespace qft::model {
namespace {

/// Returns the output of sub-layer `index`: the next sub-layer's input, or the layer's output.
const at::Tensor& output_of(const LayerSaved& saved, std::size_t index, const at::Tensor& y) {
  return index + 1 < saved.sublayers.size() ? saved.sublayers[index + 1].x : y;
}

bool entries_need_input(const SubLayerSpec& spec, const SubLayerWeights& w) {
  for (int i = 0; i < spec.input_groups; ++i)
    if (w.linears[static_cast<std::size_t>(i)].needs_input()) return true;
  return false;
}

}  // namespace

LayerSaved Transformer::allocate_saved(int layer, const LayerWeights& w, const at::Tensor& x, Arena& arena,
                                       const MicroInput* in) const {
  const OwnRows own = in != nullptr ? tensor_.rows_of(in->num_tokens()) : OwnRows::whole(x.size(0));
  LayerSaved saved;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const SubLayerSpec& spec = sublayers(layer)[i]->spec();
    SubLayerSaved& s = saved.sublayers.emplace_back();
    s.x = i == 0 ? x : arena.alloc(x.sizes(), dtype_);
    s.rstd = arena.alloc({own.room}, statistics_dtype());
    const std::int64_t tokens = spec.on_own_rows || in == nullptr ? own.count : in->num_tokens();
    for (const SavedSpec& t : spec.saved) {
      const auto dtype = t.type == SavedType::index ? at::kInt : t.type == SavedType::statistic ? statistics_dtype() : dtype_;
      const std::int64_t held = t.of_norm ? own.room : t.of_sequences && in != nullptr ? in->sequences.num_rows() : tokens;
      s.tensors.push_back(t.transposed ? arena.alloc({t.columns, held}, dtype) : arena.alloc({held, t.columns}, dtype));
    }
    const auto groups = spec.linears();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const std::int64_t columns = ops::lora_saved_columns(w[i].linears[g].weights), rows = tokens * groups[g]->stack.per_token;
      s.lora.push_back(columns == 0 ? at::Tensor() : arena.alloc({rows, columns}, dtype_));
    }
  }
  return saved;
}

Transformer::LayerPasses Transformer::passes_over(int layer, const MicroInput& in, const RandomPass& random,
                                                  const RoutingLoss& routing) {
  const ops::DropoutKey key = {random.seed, random.step, static_cast<std::uint32_t>(layer), 0};
  const at::Tensor& rows = in.angles ? in.angles->rows : in.positions;
  const ops::RopeTable& table = in.angles ? in.angles->table : rope_;
  LayerPasses passes{{rows,
                      &in.sequences,
                      {random.lora_dropout, key, in.identity},
                      table,
                      workspace_,
                      dtype_,
                      in.routing.observed() ? &in.routing : nullptr,
                      routing,
                      nullptr,
                      tensor_,
                      context_},
                     {},
                     tensor_.rows_of(in.num_tokens())};
  if (!tensor_.alone()) passes.on_own_rows.emplace(passes.on_all_rows).keep(passes.own);
  return passes;
}

void Transformer::observe_routing(int layer, const MicroInput& in, const LayerSaved& saved) const {
  if (!in.routing.observed()) return;
  for (std::size_t i = 0; i < saved.sublayers.size(); ++i) sublayers(layer)[i]->observe(layer, saved.sublayers[i], in.routing);
}

void Transformer::layer_forward(int layer, const LayerWeights& w, const MicroInput& in, const RandomPass& random,
                                const at::Tensor& y, const LayerSaved& saved, const ExpertRowsCallback& on_expert_rows) {
  LayerPasses passes = passes_over(layer, in, random);
  if (on_expert_rows) passes.set(&on_expert_rows);
  run_forward(layer, w, y, saved, [&](std::size_t i, const at::Tensor& from, const at::Tensor& to) {
    const SubLayer& sublayer = *sublayers(layer)[i];
    const auto run = [&](const at::Tensor& x, const at::Tensor& out) {
      sublayer.forward(w[i], x, passes.of(sublayer), saved.sublayers[i], out);
    };
    if (passes.are_same()) return run(from, to);
    if (sublayer.spec().on_own_rows) {
      run(passes.own.filled(from), passes.own.filled(to));
      return passes.own.clear_rest(to);
    }
    const std::int64_t rows = in.num_tokens();
    const at::Tensor partial = room_of_all("partial", rows);
    run(gathered("gathered", rows, from), partial.narrow(0, 0, rows));
    tensor_.reduce_scatter(partial, rows, to);
  });
}

void Transformer::layer_decode(int layer, const LayerWeights& w, const Angles& angles, std::span<const SequenceTokens> sequences,
                               const at::Tensor& y, const LayerSaved& saved) {
  LayerPass pass = {angles.rows, nullptr, {}, angles.table, workspace_, dtype_};
  pass.tensor = tensor_;
  run_forward(layer, w, y, saved, [&](std::size_t i, const at::Tensor& from, const at::Tensor& to) {
    const SubLayer& sublayer = *sublayers(layer)[i];
    std::vector<NewTokens> tokens;
    for (const SequenceTokens& s : sequences) tokens.push_back({s.sequence->at(layer, i), s.sequence->length(), s.count});
    sublayer.decode(w[i], from, pass, tokens, saved.sublayers[i], to);
    if (!sublayer.spec().on_own_rows) tensor_.sum(to);  // few rows: each rank has all of them
  });
}

void Transformer::run_forward(int layer, const LayerWeights& w, const at::Tensor& y, const LayerSaved& saved, const Branch& sub) {
  for (std::size_t i = 0; i < sublayers(layer).size(); ++i) {
    const SubLayerSaved& s = saved.sublayers[i];
    const at::Tensor branch = scratch("branch", y.size(0), y.size(1));
    const auto norm = [&](const at::Tensor& from, const at::Tensor& to) {
      ops::rms_norm_forward(from, w[i].norm.value, spec_.config.rms_norm_eps, to, s.rstd, norm_);
    };
    if (sublayers(layer)[i]->spec().norm_after) {
      sub(i, s.x, s.tensors.back());
      norm(s.tensors.back(), branch);
    } else {
      const at::Tensor normed = scratch("norm", y.size(0), y.size(1));
      norm(s.x, normed);
      sub(i, normed, branch);
    }
    at::add_out(const_cast<at::Tensor&>(output_of(saved, i, y)), s.x, branch);
  }
}

void Transformer::layer_backward(int layer, const LayerWeights& w, const MicroInput& in, const RandomPass& random,
                                 const LayerSaved& saved, const at::Tensor& g, bool needs_input_grad,
                                 const RoutingLoss& routing) {
  const LayerPasses passes = passes_over(layer, in, random, routing);
  for (std::size_t i = sublayers(layer).size(); i-- > 0;) {
    const bool propagate = i > 0 || needs_input_grad;
    if (sublayers(layer)[i]->spec().norm_after)
      norm_after_backward(*sublayers(layer)[i], w[i], passes, saved.sublayers[i], g, propagate);
    else
      norm_before_backward(*sublayers(layer)[i], w[i], passes, saved.sublayers[i], g, propagate);
  }
}

void Transformer::norm_before_backward(const SubLayer& sublayer, const SubLayerWeights& w, const LayerPasses& passes,
                                       const SubLayerSaved& s, const at::Tensor& g, bool propagate) {
  const at::Tensor gbranch = scratch("branch", g.size(0), g.size(1));
  at::Tensor normed;  // cheaper to recompute than to keep
  if (entries_need_input(sublayer.spec(), w)) {
    normed = scratch("norm", g.size(0), g.size(1));
    ops::rms_norm_forward(s.x, w.norm.value, spec_.config.rms_norm_eps, normed, s.rstd, norm_);
  }
  // The norm's own gradient needs gbranch even if nothing below trains.
  propagate = propagate || w.norm.grad.defined();
  sublayer_backward(sublayer, w, normed, passes, s, g, gbranch, propagate ? ops::GradMode::write : ops::GradMode::skip);
  if (propagate)
    ops::rms_norm_backward({.gy = gbranch,
                            .x = s.x,
                            .weight = w.norm.value,
                            .rstd = s.rstd,
                            .residual_grad = g,
                            .gx = g,
                            .gweight = w.norm.grad,
                            .form = norm_},
                           workspace_);
}

void Transformer::norm_after_backward(const SubLayer& sublayer, const SubLayerWeights& w, const LayerPasses& passes,
                                      const SubLayerSaved& s, const at::Tensor& g, bool propagate) {
  const at::Tensor gout = scratch("norm", g.size(0), g.size(1)), gbranch = scratch("branch", g.size(0), g.size(1));
  ops::rms_norm_backward(
      {.gy = g, .x = s.tensors.back(), .weight = w.norm.value, .rstd = s.rstd, .gx = gout, .gweight = w.norm.grad, .form = norm_},
      workspace_);
  sublayer_backward(sublayer, w, entries_need_input(sublayer.spec(), w) ? s.x : at::Tensor(), passes, s, gout, gbranch,
                    propagate ? ops::GradMode::write : ops::GradMode::skip);
  if (propagate) g.add_(gbranch);
}

void Transformer::sublayer_backward(const SubLayer& sublayer, const SubLayerWeights& w, const at::Tensor& x,
                                    const LayerPasses& passes, const SubLayerSaved& s, const at::Tensor& gout,
                                    const at::Tensor& gx, ops::GradMode mode) {
  const LayerPass& pass = passes.of(sublayer);
  if (passes.are_same()) return sublayer.backward(w, x, pass, s, gout, gx, mode);
  if (sublayer.spec().on_own_rows) {
    const OwnRows& own = passes.own;
    sublayer.backward(w, x.defined() ? own.filled(x) : x, pass, s, own.filled(gout), own.filled(gx), mode);
    return own.clear_rest(gx);
  }
  const std::int64_t rows = pass.tokens();
  const at::Tensor all = x.defined() ? gathered("gathered", rows, x) : x;
  const at::Tensor partial = room_of_all("partial", rows);
  sublayer.backward(w, all, pass, s, gathered("gathered.g", rows, gout), partial.narrow(0, 0, rows), mode);
  if (mode != ops::GradMode::skip) tensor_.reduce_scatter(partial, rows, gx);
}

at::Tensor Transformer::room_of_all(const char* name, std::int64_t rows) {
  return scratch(name, tensor_.room_of_all(rows), spec_.config.hidden_size);
}

at::Tensor Transformer::gathered(const char* name, std::int64_t rows, const at::Tensor& own) {
  const at::Tensor all = room_of_all(name, rows);
  tensor_.all_gather(own, all);
  return all.narrow(0, 0, rows);
}

}  // namespace qft::model
