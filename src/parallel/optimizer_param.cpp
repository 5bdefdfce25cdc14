#include "qft/parallel/optimizer_param.h"

#include "qft/optim/square_sum.h"

#include <algorithm>

namespace qft::parallel {

namespace {

optim::Param::Cut cut_of(const model::ParamSpec& param) {
  if (param.is_whole()) return optim::Param::Cut::none;
  const bool whole_rows = std::all_of(param.boxes.begin(), param.boxes.end(), [&](const Box& box) {
    return std::equal(box.extent.begin() + 1, box.extent.end(), param.shape.begin() + 1, param.shape.end());
  });
  return whole_rows ? optim::Param::Cut::rows : optim::Param::Cut::columns;
}

}  // namespace

optim::Param optimizer_param(const model::ParamSpec& param) {
  using Place = optim::Param::Place;
  const bool of_experts = !param.parts.empty() || param.experts_last || param.path.find(".experts.") != std::string::npos;
  return {param.shape, of_experts,
          param.path == model::kEmbedTokens ? Place::embedding
          : param.path == model::kLmHead    ? Place::head
                                            : Place::layer,
          cut_of(param)};
}

std::int64_t state_bytes(const optim::RuleSpec& rule, const optim::Hyper& hyper, const optim::Precision& precision,
                         const model::UnitSpec& unit, std::int64_t length, int tensor_ranks) {
  if (unit.trainable_numel == 0) return 0;
  if (rule.is_uniform()) return rule.state_bytes({{length}}, hyper, precision);
  std::int64_t bytes = 0;
  for (const model::ParamSpec& p : unit.params) {
    if (!p.trainable) continue;
    const optim::Param param = optimizer_param(p);
    const double local = static_cast<double>(p.numel) / static_cast<double>(param.numel());
    for (const optim::StateSpec& s : rule.states(param, hyper, precision))
      bytes += s.block_size == 0 ? s.bytes() / tensor_ranks
               : param.is_cut()  ? static_cast<std::int64_t>(static_cast<double>(s.bytes()) * local)
                                 : s.bytes();
  }
  return static_cast<std::int64_t>(static_cast<double>(bytes) * static_cast<double>(length) /
                                   static_cast<double>(unit.trainable_numel));
}

Ranges ranges_in_norm(const model::UnitSpec& unit, std::int64_t begin, std::int64_t length) {
  Ranges ranges;
  std::int64_t next = 0;  // start of the parameter, or of the padding before the first one
  bool counted = true;
  const auto close = [&](std::int64_t end) {
    const Range range{std::clamp<std::int64_t>(next - begin, 0, length), std::clamp<std::int64_t>(end - begin, 0, length)};
    if (counted && range.begin < range.end) append(ranges, range);
    next = end;
  };
  for (const auto& p : unit.params) {
    if (!p.trainable) continue;
    close(p.offset);
    counted = p.first_holder;
  }
  close(begin + length);
  return ranges;
}

void CountedGrads::add(std::size_t unit, const at::Tensor& grads, const Ranges& ranges) {
  for (const Range& range : ranges) {
    unit_of_.push_back(unit);
    grads_.push_back(grads.narrow(0, range.begin, range.size()));
  }
}

std::vector<double> CountedGrads::square_sums() const {
  std::vector<double> by_unit(units_);
  const std::vector<double> sums = optim::square_sums(grads_);
  for (std::size_t i = 0; i < sums.size(); ++i) by_unit[unit_of_[i]] += sums[i];
  return by_unit;
}

optim::FlatParams owned_params(const model::UnitSpec& unit, const at::Tensor& weights, const at::Tensor& grads,
                               std::int64_t begin) {
  optim::FlatParams flat{unit.name, weights, grads, {}, begin};
  for (const auto& p : unit.params) {
    if (!p.trainable) continue;
    const optim::Param param = optimizer_param(p);
    flat.segments.push_back({p.offset, p.offset + p.numel, p.lr_factor, p.weight_decay ? 1.0 : 0.0, param,
                             param.is_cut() ? p.boxes : std::vector<Box>{}, p.whole_offset});
  }
  return flat;
}

}  // namespace qft::parallel
