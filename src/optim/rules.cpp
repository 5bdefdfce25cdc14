#include "rules.h"

#include "qft/comm/communicator.h"
#include "qft/core/error.h"

#include <algorithm>
#include <numeric>

#include <ATen/OpMathType.h>
#include <fmt/ranges.h>

namespace qft::optim {
namespace {

/// Elements processed at a time: intermediate values stay in the cache, and need no second gradient buffer.
constexpr std::int64_t kUpdatedAtOnce = std::int64_t{1} << 17;

std::int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

std::int64_t Param::numel() const {
  return product(shape);
}

Shape Param::as_stack() const {
  if (!is_matrix()) return {1, 1, numel()};
  return shape.size() == 3 ? shape : Shape{1, shape[0], shape[1]};
}

std::int64_t StateSpec::numel() const {
  return product(shape);
}

std::int64_t StateSpec::bytes() const {
  return numel() * static_cast<std::int64_t>(c10::elementSize(type));
}

std::vector<Box> StateSpec::boxes_of(const Shape& param, const std::vector<Box>& boxes) const {
  if (block_size == 1) return boxes;
  const Box all = Box::whole(shape);
  if (block_size == 0 || boxes == std::vector{Box::whole(param)}) return {all};
  const std::int64_t row = product({param.begin() + 1, param.end()});
  std::vector<Box> blocks;
  for (const Box& box : boxes) blocks.push_back({{box.start[0] * row / block_size}, {box.extent[0] * row / block_size}});
  return blocks;
}

bool of_layer(const Param& param) {
  return param.is_matrix() && param.place == Param::Place::layer;
}

bool Slices::shared() const {
  return comm != nullptr && comm->size() > 1;
}

int Slices::count() const {
  return comm == nullptr ? 1 : comm->size() / tensor_ranks;
}

std::vector<StateSpec> elementwise(std::span<const std::string_view> names, const Param& param, const Precision& precision) {
  std::vector<StateSpec> states;
  for (const std::string_view name : names) states.push_back({name, precision.state, param.shape});
  return states;
}

std::vector<StateSpec> RuleSpec::states(const Param& param, const Hyper& hyper, const Precision& precision) const {
  return state_of != nullptr ? state_of(param, hyper, precision) : elementwise(state, param, precision);
}

std::int64_t RuleSpec::state_bytes(const Param& param, const Hyper& hyper, const Precision& precision) const {
  std::int64_t bytes = 0;
  for (const StateSpec& s : states(param, hyper, precision)) bytes += s.bytes();
  return bytes;
}

void in_pieces(const Update& u, const std::function<void(const Update&)>& body) {
  const at::ScalarType wide = at::toOpMathType(u.master.scalar_type());
  for (std::int64_t begin = 0; begin < u.master.numel(); begin += kUpdatedAtOnce) {
    const std::int64_t count = std::min(kUpdatedAtOnce, u.master.numel() - begin);
    const auto part = [&](const at::Tensor& t) { return t.narrow(0, begin, count); };
    Update piece = u;
    piece.copy.reset();
    piece.first += begin;
    piece.position += begin;
    piece.master = part(u.master).to(wide);
    piece.grads = part(u.grads).to(wide);
    for (at::Tensor& s : piece.state) s = part(s).to(wide);
    body(piece);
    const auto round = [&](const at::Tensor& whole, const at::Tensor& computed) {
      if (whole.scalar_type() != computed.scalar_type()) part(whole).copy_(computed);
    };
    round(u.master, piece.master);
    for (std::size_t s = 0; s < u.state.size(); ++s) round(u.state[s], piece.state[s]);
  }
}

void apply_whole(const Update& u) {
  in_pieces(u, [&](const Update& piece) {
    piece.master.mul_(1.0 - u.learning_rate * u.weight_decay).sub_(piece.grads, u.learning_rate);
  });
}

std::span<const RuleSpec> rules() {
  static const std::vector<RuleSpec> kRules = [] {
#define QFT_MAKE_RULE(RULE, ...) RULE##_rule(),
    std::vector<RuleSpec> made = {QFT_OPTIMIZERS(QFT_MAKE_RULE)};
#undef QFT_MAKE_RULE
    for (std::size_t i = 0; i < made.size(); ++i) {
      const config::OptimizerNames& names = config::kOptimizers[i];
      made[i].name = names.name;
      made[i].optim.assign(names.optim.begin(), names.optim.end());
    }
    return made;
  }();
  return kRules;
}

const RuleSpec& rule_of(std::string_view optim) {
  std::vector<std::string_view> known;
  for (const RuleSpec& rule : rules()) {
    if (std::find(rule.optim.begin(), rule.optim.end(), optim) != rule.optim.end()) return rule;
    known.insert(known.end(), rule.optim.begin(), rule.optim.end());
  }
  fail_config("optim '{}' is not implemented: use one of {}", optim, fmt::join(known, ", "));
}

}  // namespace qft::optim
