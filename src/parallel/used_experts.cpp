#include "used_experts.h"

#include "qft/core/error.h"
#include "qft/parallel/weight_store.h"

#include <algorithm>
#include <string>

namespace qft::parallel {
namespace {

void unite(std::vector<std::uint8_t>& mask, std::span<const std::uint8_t> more) {
  std::ranges::transform(mask, more, mask.begin(), [](auto a, auto b) { return std::max(a, b); });
}

}  // namespace

UsedExperts::UsedExperts(const model::ModelSpec& spec, const model::UnitSpec& unit) {
  if (unit.kind != model::UnitSpec::Kind::layer) return;
  std::int64_t count = 0;
  for (const auto& sublayer : spec.layers.at(static_cast<std::size_t>(unit.layer)))
    for (const model::ParamGroup& group : sublayer.params) {
      if (!group.is_stack()) continue;
      const std::string path = path_of(group.stack);
      for (const model::ParamSpec& p : unit.params) {
        // Quantised experts are decoded together, so they are gathered together.
        if (p.path != path || p.part() == model::Part::quantized) continue;
        count = group.experts();
        QFT_ASSERT(p.numel % count == 0, "{} has {} elements for {} experts", p.name, p.numel, count);
        stacks_.push_back({p.part(), p.offset, p.numel / count});
      }
    }
  std::ranges::sort(stacks_, {}, &Stack::offset);
  count_ = count;
  used_.assign(static_cast<std::size_t>(count), 0);
  recorded_ = used_;
}

void UsedExperts::start() {
  if (on_demand_) many_used_ = more_than_half(used_);
  on_demand_ = !many_used_;
  std::ranges::fill(used_, 0);
}

std::vector<std::uint8_t> UsedExperts::mask(std::span<const std::int64_t> begins) const {
  std::vector<std::uint8_t> mask(used_.size(), 0);
  for (std::size_t e = 0; e + 1 < begins.size(); ++e) mask[e] = begins[e] < begins[e + 1] ? 1 : 0;
  return mask;
}

void UsedExperts::add(std::span<const std::uint8_t> mask) {
  unite(used_, mask);
}

void UsedExperts::record(std::span<const std::uint8_t> mask) {
  unite(recorded_, mask);
}

void UsedExperts::set_agreed(std::span<const std::uint8_t> seen) {
  if (std::ranges::count(seen, 1) == 0) return;  // no pass ran since
  many_used_ = more_than_half(seen);
  std::ranges::fill(recorded_, 0);
}

bool UsedExperts::more_than_half(std::span<const std::uint8_t> mask) const {
  return 2 * std::ranges::count(mask, 1) > count_;
}

Ranges UsedExperts::needed(model::Part part, std::int64_t n, GatherPurpose purpose) const {
  if (purpose == GatherPurpose::all || !on_demand_ || (purpose == GatherPurpose::backward && more_than_half(used_)))
    return {{0, n}};
  return united(without_experts(part, n), of(used_, part));
}

Ranges UsedExperts::of(std::span<const std::uint8_t> mask, model::Part part) const {
  Ranges ranges;
  for (const Stack& stack : stacks_)
    for (std::size_t e = 0; stack.part == part && e < mask.size(); ++e) {
      const std::int64_t begin = stack.offset + static_cast<std::int64_t>(e) * stack.numel;
      if (mask[e] != 0) append(ranges, {begin, begin + stack.numel});
    }
  return ranges;
}

Ranges UsedExperts::without_experts(model::Part part, std::int64_t n) const {
  Ranges experts;
  for (const Stack& stack : stacks_)
    if (stack.part == part) append(experts, {stack.offset, stack.offset + count_ * stack.numel});
  return difference({{0, n}}, experts);
}

std::int64_t UsedExperts::max_staged_elements(std::int64_t n) const {
  std::int64_t experts = 0;
  for (const Stack& stack : stacks_) experts += count_ * stack.numel;
  return n - experts / 2;
}

std::int64_t max_staging_bytes(const model::ModelSpec& spec, at::ScalarType compute) {
  std::int64_t most = 0;
  for (const model::UnitSpec& unit : spec.units)
    if (const UsedExperts experts(spec, unit); !experts.empty())
      most = std::max(most, experts.max_staged_elements(unit.frozen_numel + unit.trainable_numel));
  return most * static_cast<std::int64_t>(c10::elementSize(compute));
}

}  // namespace qft::parallel
