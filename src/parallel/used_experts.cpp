#include "used_experts.h"

#include "qft/core/error.h"

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
        if (p.path.starts_with(path) && p.derived_numel > 0) return;
        // Quantised experts are decoded together.
        if (p.path != path || p.part() == model::Part::quantized) continue;
        count = group.experts();
        QFT_ASSERT(p.numel % count == 0, "{} has {} elements for {} experts", p.name, p.numel, count);
        stacks_.push_back({p.part(), p.offset, p.numel / count});
      }
    }
  std::ranges::sort(stacks_, {}, &Stack::offset);
  count_ = count;
  used_.assign(static_cast<std::size_t>(count), 0);
  seen_ = used_;
}

void UsedExperts::start() {
  if (as_asked_) many_ = more_than_half(used_);
  as_asked_ = !many_;
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

bool UsedExperts::covers(std::span<const std::uint8_t> mask) const {
  if (!as_asked_ || more_than_half(used_)) return true;
  for (std::size_t e = 0; e < mask.size(); ++e)
    if (mask[e] > used_[e]) return false;
  return true;
}

void UsedExperts::see(std::span<const std::uint8_t> mask) {
  unite(seen_, mask);
}

void UsedExperts::agreed(std::span<const std::uint8_t> seen) {
  many_ = more_than_half(seen);
  std::ranges::fill(seen_, 0);
}

bool UsedExperts::more_than_half(std::span<const std::uint8_t> mask) const {
  return 2 * std::ranges::count(mask, 1) > count_;
}

Ranges UsedExperts::needed(model::Part part, std::int64_t n, Need need) const {
  if (need == Need::all || !as_asked_ || (need == Need::backward && more_than_half(used_))) return {{0, n}};
  return united(without_experts(part, n), used(part));
}

Ranges UsedExperts::used(model::Part part) const {
  Ranges ranges;
  for (const Stack& stack : stacks_)
    for (std::size_t e = 0; stack.part == part && e < used_.size(); ++e) {
      const std::int64_t begin = stack.offset + static_cast<std::int64_t>(e) * stack.numel;
      if (used_[e] != 0) append(ranges, {begin, begin + stack.numel});
    }
  return ranges;
}

Ranges UsedExperts::without_experts(model::Part part, std::int64_t n) const {
  Ranges experts;
  for (const Stack& stack : stacks_)
    if (stack.part == part) append(experts, {stack.offset, stack.offset + count_ * stack.numel});
  return difference({{0, n}}, experts);
}

}  // namespace qft::parallel
