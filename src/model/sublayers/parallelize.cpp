// The tensors that tensor ranks cut, in the order of a forward pass. Of a tensor that is cut, a rank has some rows (outputs) or
// columns (inputs), and their gradient. A tensor that is not cut is whole on every rank; its gradient there is a term, and the
// stores add the terms up at the end of a step (parallel/tensor_sum.h).
//
//   embedding   Rows of the vocabulary are cut (layer_split.cpp). A rank looks up its own tokens, and zeros for the others. These
//               are added up, and each rank gets some rows of the sum (model/row_sharing.h).
//   norms       Whole, on a rank's own rows.
//   sub-layers  A rank collects all rows, and computes a term of each with its heads or inner columns. The terms are added up,
//               and each rank gets its own rows of the sum. Only the first rank adds the bias of a linear with cut columns.
//   experts     Whole: each rank computes its own rows with all of them.
//   head        The final norm is whole. Rows of the vocabulary are cut: a rank collects the labels' rows, and the ranks exchange
//               maxima and sums of exponentials. Value heads and classifiers are whole; the rank with a sequence's last row
//               computes its values.
//   adapters    Follow the linear that they wrap (adapters/lora_spec.cpp, oft_spec.cpp). A linear with cut rows has B and the
//               magnitudes cut, A and OFT's rotations whole; one with cut columns has A and the rotations' blocks cut.
//
// Context ranks cut no tensor: "all rows" above are those of a context rank, and each has a term of every gradient. For attention
// and the delta rule they exchange heads (model/head_exchange.h).
#include "parallelize.h"

#include <string>
#include <string_view>

#include "descriptions.h"

namespace qft::model {
namespace {

constexpr const char *kRouter = "gate", *kSharedRouter = "shared_expert_gate";

/// Returns the channels of a delta net's convolution: those of q, of k and of v.
Cut channels_of(const ModelConfig& c, const Heads& heads, Share share) {
  const Cut keys = heads.key_cut(share, c.delta_net.key_dim);
  return Cut::joined({keys, keys, heads.cut(share, c.delta_net.value_dim)});
}

/// Returns the linears of a delta net's files: one for each kind of row, or (by_key_head) with all kinds grouped by key head.
std::vector<LinearSpec> projections(const ModelConfig& c, const Heads& heads, Share share) {
  const DeltaNetConfig& d = c.delta_net;
  const std::int64_t group = heads.per_key_head(), hidden = c.hidden_size;
  const auto of = [&](const char* name, const Cut& rows) {
    return LinearSpec::of_rows(name, std::string("linear_attn.") + name, rows, hidden);
  };
  if (d.by_key_head)
    return {of("in_proj_qkvz", heads.key_cut(share, 2 * (d.key_dim + group * d.value_dim))),
            of("in_proj_ba", heads.key_cut(share, 2 * group))};
  return {of("in_proj_qkv", channels_of(c, heads, share)), of("in_proj_z", heads.cut(share, d.value_dim)),
          of("in_proj_b", heads.cut(share, 1)), of("in_proj_a", heads.cut(share, 1))};
}

}  // namespace

std::vector<ParamGroup> attention_params(const ModelConfig& c, const Heads& heads, Share share) {
  const Cut q = heads.cut(share, c.head_dim), kv = heads.key_cut(share, c.head_dim), each = Cut::none(c.head_dim);
  const std::int64_t hidden = c.hidden_size;
  std::vector<ParamGroup> all = {
      {.linears = {LinearSpec::of_rows("q_proj", "self_attn.q_proj", heads.cut(share, q_proj_dim(c)), hidden, c.qkv_bias),
                   LinearSpec::of_rows("k_proj", "self_attn.k_proj", kv, hidden, c.qkv_bias),
                   LinearSpec::of_rows("v_proj", "self_attn.v_proj", kv, hidden, c.qkv_bias)}}};
  if (c.qk_norm != QkNorm::none) {  // of each head, which is whole, or of all heads
    all.push_back({.tensor = "self_attn.q_norm.weight", .rows = c.qk_norm == QkNorm::heads ? each : q});
    all.push_back({.tensor = "self_attn.k_norm.weight", .rows = c.qk_norm == QkNorm::heads ? each : kv});
  }
  all.push_back({.linears = {LinearSpec::of_columns("o_proj", "self_attn.o_proj", hidden, q, c.o_bias)}});
  return all;
}

std::vector<ParamGroup> delta_net_params(const ModelConfig& c, const Heads& heads, Share share) {
  const Cut of_heads = heads.cut(share, 1), values = heads.cut(share, c.delta_net.value_dim);
  return {{.linears = projections(c, heads, share)},
          {.tensor = "linear_attn.conv1d.weight",
           .rows = channels_of(c, heads, share),
           .inner = {1, c.delta_net.taps},
           .decays = true},
          {.tensor = "linear_attn.dt_bias", .rows = of_heads},
          {.tensor = "linear_attn.A_log", .rows = of_heads, .decays = true},
          {.tensor = "linear_attn.norm.weight", .rows = Cut::none(c.delta_net.value_dim)},
          {.linears = {LinearSpec::of_columns("out_proj", "linear_attn.out_proj", c.hidden_size, values)}}};
}

std::vector<ParamGroup> swiglu_params(const ModelConfig& c, const Cut& inner) {
  return {{.linears = {LinearSpec::of_rows("gate_proj", "mlp.gate_proj", inner, c.hidden_size, c.mlp_bias),
                       LinearSpec::of_rows("up_proj", "mlp.up_proj", inner, c.hidden_size, c.mlp_bias)}},
          {.linears = {LinearSpec::of_columns("down_proj", "mlp.down_proj", c.hidden_size, inner, c.mlp_bias)}}};
}

std::vector<ParamGroup> squared_relu_params(const ModelConfig& c, const Cut& inner) {
  return {{.linears = {LinearSpec::of_rows("up_proj", "mlp.up_proj", inner, c.hidden_size, c.mlp_bias)}},
          {.linears = {LinearSpec::of_columns("down_proj", "mlp.down_proj", c.hidden_size, inner, c.mlp_bias)}}};
}

std::vector<ParamGroup> experts_params(const ModelConfig& c) {
  const ExpertsConfig& e = c.experts;
  const std::string block = e.block + ".", experts = block + "experts", shared = block + "shared_expert.";
  const auto into = [&](const std::string& name, const std::string& path, std::int64_t out) {
    return LinearSpec::of_rows(name, path, Cut::none(out), c.hidden_size);
  };
  const auto out_of = [&](const std::string& name, const std::string& path, std::int64_t in) {
    return LinearSpec::of_columns(name, path, c.hidden_size, Cut::none(in));
  };
  const ParamGroup down{.linears = {out_of(e.down, e.down, e.intermediate_size)},
                        .stack = {e.count, e.per_token, experts, "down_proj", e.fused}};
  std::vector<ParamGroup> all = {{.linears = {into(kRouter, block + kRouter, e.count)}},
                                 {.linears = {into(e.gate, e.gate, e.intermediate_size), into(e.up, e.up, e.intermediate_size)},
                                  .stack = {e.count, e.per_token, experts, "gate_up_proj", e.fused}}};
  if (e.shared_size > 0) {  // linears that read the sub-layer's input come first
    all.push_back({.linears = {into("gate_proj", shared + "gate_proj", e.shared_size),
                               into("up_proj", shared + "up_proj", e.shared_size)}});
    all.push_back({.linears = {into(kSharedRouter, block + kSharedRouter, 1)}});
  }
  all.push_back(down);
  if (e.shared_size > 0) all.push_back({.linears = {out_of("down_proj", shared + "down_proj", e.shared_size)}});
  return all;
}

bool is_router(std::string_view name) {
  return name == kRouter || name == kSharedRouter;
}

}  // namespace qft::model
