#include "shared_sizes.h"

#include "qft/core/units.h"

#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace qft::model {
namespace {

/// Collects how many neighbours of one kind (heads, columns) stay together in all linears.
class Together {
 public:
  /// `step`: elements between two possible cuts of a linear's dimension, which has `width` elements for each neighbour.
  void add(const Granule& linear, std::int64_t step, std::int64_t width) {
    const std::int64_t count = width > 0 ? step / std::gcd(step, width) : 1;
    if (count > 1) reasons_.push_back(linear.why);
    granule_ = std::lcm(granule_, count);
  }
  void add_rows(const Granule& linear, std::int64_t width) { add(linear, linear.rows, width); }
  void add_columns(const Granule& linear, std::int64_t width) { add(linear, linear.columns, width); }

  std::int64_t granule() const { return granule_; }
  /// Returns the end of a description in errors: ", 8 columns at a time, so in 5 parts (mlp.down_proj is kept as nf4)". `count`:
  /// the number of these things; `each`: " for each key head" if each key head, not the sub-layer, has as many.
  std::string in_words(const char* things, std::int64_t count, const char* each = "") const {
    if (granule_ == 1) return "";
    return fmt::format(", {} {} at a time, so in {}{} ({})", granule_, things,
                       count_noun((count + granule_ - 1) / granule_, "part"), each, fmt::join(reasons_, "; "));
  }

 private:
  std::int64_t granule_ = 1;
  std::vector<std::string> reasons_;
};

/// With at least this many tiles a rank, its part is at most a quarter larger than another's.
constexpr std::int64_t kTilesOfARank = 4;

}  // namespace

Granule LayerSplit::granule_of(std::string_view path) const {
  const auto found = granules.find(path);
  return found == granules.end() ? Granule{} : found->second;
}

std::int64_t q_proj_dim(const ModelConfig& config) {
  return (config.attention_gate ? 2 : 1) * config.head_dim;
}

Heads attention_heads(const ModelConfig& c, const LayerSplit& split) {
  Heads h{.heads = c.num_heads, .key_heads = c.num_kv_heads};
  const auto linear = [&](const char* path) { return split.granule_of(path); };
  const auto add_heads = [&](Together& together, std::int64_t heads) {
    together.add_rows(linear("self_attn.q_proj"), heads * q_proj_dim(c));
    together.add_columns(linear("self_attn.o_proj"), heads * c.head_dim);
  };
  Together keys, heads_of_a_key;
  add_heads(keys, h.per_key_head());
  for (const char* path : {"self_attn.k_proj", "self_attn.v_proj"}) keys.add_rows(linear(path), c.head_dim);
  add_heads(heads_of_a_key, 1);
  h.granule = keys.granule();
  h.head_granule = h.granule == 1 ? heads_of_a_key.granule() : 0;
  h.what = fmt::format("the {} query heads and {} key and value heads of {}self_attn{}", h.heads, h.key_heads, split.layer,
                       h.granule > 1 ? keys.in_words("key heads", h.key_heads)
                                     : heads_of_a_key.in_words("query heads", h.per_key_head(), " for each key head"));
  return h;
}

Heads delta_heads(const ModelConfig& c, const LayerSplit& split) {
  const DeltaNetConfig& d = c.delta_net;
  Heads h{.heads = d.value_heads, .key_heads = d.key_heads, .head_granule = 0};
  const auto linear = [&](const char* path) { return split.granule_of(path); };
  const std::int64_t group = h.per_key_head(), values = group * d.value_dim, keys = d.key_heads * d.key_dim;
  Together together;
  // The rows of q, k and v lie one after the other, so each kind must begin where a cut is possible.
  const Granule qkv = linear("linear_attn.in_proj_qkv");
  if (keys % qkv.rows != 0) together.add(qkv, d.key_heads, 1);
  for (const std::int64_t width : {d.key_dim, values}) together.add_rows(qkv, width);
  together.add_rows(linear("linear_attn.in_proj_z"), values);
  for (const char* path : {"linear_attn.in_proj_b", "linear_attn.in_proj_a"}) together.add_rows(linear(path), group);
  together.add_rows(linear("linear_attn.in_proj_qkvz"), 2 * (d.key_dim + values));
  together.add_rows(linear("linear_attn.in_proj_ba"), 2 * group);
  together.add_columns(linear("linear_attn.out_proj"), values);
  h.granule = together.granule();
  h.what = fmt::format("the {} key heads and {} value heads of {}linear_attn{}", h.key_heads, h.heads, split.layer,
                       together.in_words("key heads", h.key_heads));
  return h;
}

InnerColumns::InnerColumns(const ModelConfig& c, const LayerSplit& split) : count(c.intermediate_size) {
  Together together;
  for (const char* path : {"mlp.gate_proj", "mlp.up_proj"}) together.add_rows(split.granule_of(path), 1);
  together.add_columns(split.granule_of("mlp.down_proj"), 1);
  granule = tile = together.granule();
  for (const char* path : {"mlp.gate_proj", "mlp.up_proj"}) tile = std::lcm(tile, split.granule_of(path).tile_rows);
  tile = std::lcm(tile, split.granule_of("mlp.down_proj").tile_columns);
  what = fmt::format("the {} inner columns of {}mlp{}", count, split.layer, together.in_words("columns", count));
}

Cut InnerColumns::cut(Share share) const {
  return Cut::split(count, count / tile >= kTilesOfARank * share.ranks ? tile : granule, share, what);
}

std::vector<Shared> shared_of_layer(const ModelConfig& config, int index, const LayerSplit& split) {
  std::vector<Shared> shared;
  const Heads heads = config.is_recurrent(index) ? delta_heads(config, split) : attention_heads(config, split);
  shared.push_back(
      {heads.what, [heads](int ranks) { return heads.fits(ranks); }, [heads](int ranks) { return heads.fewest(ranks); }});
  if (config.is_sparse(index)) return shared;
  const InnerColumns columns(config, split);
  shared.push_back({columns.what, [columns](int ranks) { return columns.fit(ranks); }});
  return shared;
}

}  // namespace qft::model
