#include "base_params.h"

#include "qft/core/error.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "place.h"
#include "sublayers/descriptions.h"

namespace qft::model {
namespace {

ParamSpec param_of(const UnitSpec& unit, const std::string& prefix, const ModelSpec& spec, const BaseTensor& tensor) {
  ParamSpec p;
  p.path = tensor.path;
  p.name = prefix + tensor.path;
  p.role = tensor.role;
  p.trainable = p.role == Role::value_head || trains(spec, unit.layer, p.path, p.name);
  p.weight_decay = tensor.decays;
  Shape shape{tensor.rows.whole};
  shape.insert(shape.end(), tensor.inner.begin(), tensor.inner.end());
  set_boxes(p, std::move(shape), 0, tensor.rows, spec.share);
  return p;
}

/// Keeps a frozen weight in this format, in `pieces` equal pieces.
void pack(ParamSpec& p, const ModelSpec& spec, const ops::Quantization& quantization, std::int64_t pieces) {
  if (!is_packed(spec, p.name, p.trainable, quantization)) return;
  const std::int64_t columns = p.shape.back();
  const std::int64_t rows = static_cast<std::int64_t>(Box::whole(p.shape).elements()) / columns;
  p.packed_pieces = pieces;
  p.packed = ops::QuantizedLayout::of(quantization, rows / pieces, columns);
}

/// Returns the common format of these weights, which are stored consecutively.
ops::Quantization common_format(const WeightStorage& weight_storage, const std::vector<std::string>& tensors) {
  const ops::Quantization kind = weight_storage.format_of(tensors.front());
  for (const std::string& tensor : tensors)
    if (const ops::Quantization other = weight_storage.format_of(tensor); other != kind)
      fail("'{}' is kept as {}, but '{}' as {}: quantise all experts of a layer in the same format", tensors.front(),
           ops::describe(kind), tensor, ops::describe(other));
  return kind;
}

/// Returns the formats of a projection group's linears: if any linear is quantised, all are decoded together.
std::vector<ops::Quantization> formats_of(const WeightStorage& weight_storage, const std::vector<std::string>& tensors) {
  std::vector<ops::Quantization> kinds;
  for (const std::string& tensor : tensors) kinds.push_back(weight_storage.format_of(tensor));
  const auto is_plain = [](const ops::Quantization& kind) { return kind.format == ops::QuantFormat::none; };
  if (std::ranges::all_of(kinds, is_plain)) return kinds;
  std::ranges::replace_if(kinds, is_plain, ops::Quantization{ops::QuantFormat::fp32});
  return kinds;
}

void place_stack(UnitSpec& unit, const std::string& prefix, const ModelSpec& spec, const ParamGroup& group,
                 const WeightStorage& weight_storage) {
  ParamSpec p = param_of(
      unit, prefix, spec,
      {.path = path_of(group.stack), .rows = Cut::none(group.stack.experts), .inner = {group.out(), group.in()}, .decays = true});
  std::vector<std::size_t> linears(group.linears.size());
  std::iota(linears.begin(), linears.end(), std::size_t{0});
  if (!group.stack.fused) p.parts = expert_tensors(prefix, group, linears, ".weight", 0, group.in());
  std::vector<std::string> names;
  for (const FileTensor& part : p.parts) names.push_back(part.name);
  if (names.empty()) names.push_back(p.name);
  const std::int64_t pieces = weight_storage.by_file_tensor ? std::ssize(names) : 1;
  pack(p, spec, common_format(weight_storage, names), pieces);
  place(unit, {std::move(p)});
}

ParamSpec weight_of(const UnitSpec& unit, const std::string& prefix, const ModelSpec& spec, const LinearSpec& linear) {
  ParamSpec p = param_of(unit, prefix, spec,
                         {.path = linear.path + ".weight", .rows = linear.rows, .inner = {linear.columns.whole}, .decays = true});
  if (linear.columns.is_cut()) set_boxes(p, p.shape, 1, linear.columns, spec.share);
  return p;
}

}  // namespace

bool trains(const ModelSpec& spec, int layer, const std::string& path, const std::string& name) {
  switch (spec.finetuning) {
    case Finetuning::full:
      return true;
    case Finetuning::adapter:
      return is_saved_whole(spec.adapter.targets().modules_to_save, name);
    case Finetuning::freeze:
      return spec.freeze.trains(layer, path, name);
  }
  return false;
}

bool is_packed(const ModelSpec& spec, const std::string& name, bool trainable, const ops::Quantization& quantization) {
  if (quantization.format == ops::QuantFormat::none) return false;
  const bool beside_frozen = trainable && spec.finetuning != Finetuning::full;
  if (beside_frozen && spec.config.stored)
    fail_config(
        "'{}' would train in full, but the model's files hold it quantised ({}): remove its module from additional_target, or "
        "start from the 16-bit model",
        name, ops::describe(quantization));
  return !beside_frozen;
}

void place_single(UnitSpec& unit, const std::string& prefix, const ModelSpec& spec, const BaseTensor& tensor) {
  place(unit, {param_of(unit, prefix, spec, tensor)});
}

void place_group(UnitSpec& unit, const std::string& prefix, const ModelSpec& spec, const ParamGroup& group,
                 const WeightStorage& weight_storage) {
  if (group.linears.empty())
    return place_single(unit, prefix, spec,
                        {.path = group.tensor, .rows = group.rows, .inner = group.inner, .decays = group.decays});
  if (group.is_stack()) return place_stack(unit, prefix, spec, group, weight_storage);
  const bool router = std::ranges::any_of(group.linears, [](const LinearSpec& linear) { return is_router(linear.name); });
  std::vector<std::string> names;
  for (const LinearSpec& linear : group.linears) names.push_back(prefix + linear.path + ".weight");
  const std::vector<ops::Quantization> kinds =
      router ? std::vector<ops::Quantization>(names.size()) : formats_of(weight_storage, names);
  std::vector<ParamSpec> weights, biases;
  for (std::size_t i = 0; i < group.linears.size(); ++i) {
    const LinearSpec& linear = group.linears[i];
    weights.push_back(weight_of(unit, prefix, spec, linear));
    pack(weights.back(), spec, kinds[i], 1);
    if (linear.bias) biases.push_back(param_of(unit, prefix, spec, {.path = linear.path + ".bias", .rows = linear.rows}));
  }
  place(unit, std::move(weights));
  place(unit, std::move(biases));
}

}  // namespace qft::model
