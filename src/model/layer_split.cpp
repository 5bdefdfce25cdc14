#include "layer_split.h"

#include "qft/model/degree_error.h"
#include "qft/ops/quantized_part.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "adapters/kinds.h"
#include "base_params.h"
#include "sublayers/descriptions.h"
#include <fmt/format.h>

namespace qft::model {
namespace {

std::string in_words(ops::Quantization kind) {
  kind.nested = false;  // does not limit cuts
  const std::string name = ops::describe(kind);
  return ops::in_blocks(kind.format) ? fmt::format("{} in blocks of {} numbers", name, ops::kFourBitBlock) : name;
}

Granule granule_of(const ModelSpec& spec, int layer, const std::string& prefix, const LinearSpec& linear,
                   const WeightStorage& weight_storage) {
  Granule granule;
  const std::string path = linear.path + ".weight", name = prefix + path;
  const ops::Quantization kind = weight_storage.format_of(name);
  if (is_packed(spec, name, trains(spec, layer, path, name), kind)) {
    const auto steps = ops::part_steps(ops::QuantizedLayout::of(kind, linear.rows.whole, linear.columns.whole));
    granule = {steps.rows, steps.columns, fmt::format("{} is kept as {}", linear.path, in_words(kind)), kind.tile_rows,
               std::max<std::int64_t>(1, kind.columns)};
  }
  if (linear.split == Split::rows) {
    granule.columns = 1;
  } else if (const AdapterKind* adapter = kind_of(spec.adapter)) {
    const std::int64_t block = adapter->input_block(spec.adapter, prefix + linear.path, linear.columns.whole);
    granule.columns = std::lcm(granule.columns, block);
    if (block > 1)
      granule.why +=
          fmt::format("{}{} wraps {} in blocks of {}", granule.why.empty() ? "" : ", ", adapter->name, linear.path, block);
  }
  if (linear.split == Split::columns) granule.rows = 1;
  return granule;
}

/// Returns everything that tensor ranks share.
std::vector<Shared> shared_of(const ModelSpec& spec, const WeightStorage& weight_storage) {
  const std::int64_t rows = spec.config.vocab_size;
  std::vector<Shared> all{{fmt::format("the {} rows of the vocabulary", rows), [rows](int ranks) { return rows >= ranks; }}};
  for (int i = 0; i < spec.config.num_layers; ++i)
    for (Shared& shared : shared_of_layer(spec.config, i, split_of(spec, i, {}, weight_storage)))
      all.push_back(std::move(shared));
  return all;
}

}  // namespace

LayerSplit split_of(const ModelSpec& spec, int index, Share share, const WeightStorage& weight_storage) {
  const std::string prefix = layer_prefix(spec.config, index);
  LayerSplit split{share, prefix, {}, spec.context};
  for (const SubLayerSpec& sublayer : describe_layer(spec.config, index)) {
    if (sublayer.kind == SubLayerKind::experts) continue;
    for (const ParamGroup* group : sublayer.linears())
      for (const LinearSpec& linear : group->linears)
        split.granules[linear.path] = granule_of(spec, index, prefix, linear, weight_storage);
  }
  return split;
}

Cut vocabulary_rows(const ModelConfig& config, Share share) {
  return Cut::split(config.vocab_size, 1, share, "the vocabulary");
}

void ModelSpec::require_share(int ranks, const WeightStorage& weight_storage) const {
  const std::vector<Shared> all = shared_of(*this, weight_storage);
  const auto fit = [&](int n) { return std::ranges::all_of(all, [n](const Shared& shared) { return shared.fits(n); }); };
  const auto bad = std::ranges::find_if(all, [ranks](const Shared& shared) { return !shared.fits(ranks); });
  if (bad == all.end()) return;
  int fewer = ranks, more = ranks, divisor = ranks;
  while (fewer > 1 && !fit(fewer)) --fewer;
  while (divisor > 1 && (ranks % divisor != 0 || !fit(divisor))) --divisor;
  const auto most = static_cast<int>(std::max(config.num_heads, config.delta_net.key_heads));
  while (more <= most && !fit(more)) ++more;
  // Files that are already quantised stay as they are.
  const bool fits_unquantised =
      !config.stored && std::ranges::all_of(shared_of(*this, {}), [ranks](const Shared& shared) { return shared.fits(ranks); });
  throw DegreeError("tensor_parallel",
                    fmt::format("{} ranks cannot share {}: set tensor_parallel to {}{}{}{}", ranks, bad->what, fewer,
                                more <= most ? fmt::format(" or {}", more) : "",
                                divisor > 1 && divisor != fewer ? fmt::format(" (on as many ranks as now: {})", divisor) : "",
                                fits_unquantised ? ", or quantization_bit to 8, with which weights can be cut anywhere" : ""));
}

void ModelSpec::require_context(int ranks, int tensor_ranks, const WeightStorage& weight_storage) const {
  const Shared* fewest = nullptr;
  std::int64_t most = ranks;
  const std::vector<Shared> all = shared_of(*this, weight_storage);
  for (const Shared& shared : all)
    if (shared.fewest_heads && shared.fewest_heads(tensor_ranks) < most) {
      fewest = &shared;
      most = shared.fewest_heads(tensor_ranks);
    }
  if (fewest == nullptr) return;
  std::int64_t fitting = most;  // a divisor of the degree, so that it divides the job's ranks too
  while (ranks % fitting != 0) --fitting;
  const std::string advice = fitting > 1        ? fmt::format("set context_parallel to {}", fitting)
                             : tensor_ranks > 1 ? "leave out context_parallel, or set a smaller tensor_parallel"
                                                : "leave out context_parallel";
  throw DegreeError(
      "context_parallel",
      fmt::format("{} ranks cannot share {}{}: {}", ranks, fewest->what,
                  tensor_ranks > 1 ? fmt::format(", of which tensor_parallel: {} gives a rank {}", tensor_ranks, most) : "",
                  advice));
}

}  // namespace qft::model
