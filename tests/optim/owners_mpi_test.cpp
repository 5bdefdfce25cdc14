// Tensor ranks that hold boxes of the parameters, with slices of them: every rule updates as one rank does with whole tensors.
#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/world.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace qft::optim {
namespace {

constexpr int kUpdates = 3;

/// How tensor ranks share a tensor: not at all; as boxes of rows or columns; as boxes of each of three bands of rows; or as boxes
/// of rows that two neighbouring ranks both hold.
enum class Cutting : std::uint8_t { none, rows, columns, bands, held_twice };

struct Tensor {
  const char* name;
  Param param;
  Cutting cutting = Cutting::none;
};

/// Sizes that no number of ranks divides evenly. Tensors of at least 4096 elements have 8-bit codes.
const std::vector<Tensor>& tensors() {
  static const std::vector<Tensor> kAll = {
      {"norm", {{23}}},
      {"rows", {{47, 20}}, Cutting::rows},
      {"columns", {{20, 47}}, Cutting::columns},
      {"bands", {{33, 18}}, Cutting::bands},
      {"held_twice", {{34, 14}}, Cutting::held_twice},
      {"whole", {{12, 31}}},
      {"bias", {{41}}, Cutting::rows},
      {"stack", {{3, 9, 8}, true}},
      {"convolution", {{26, 1, 4}}, Cutting::bands},
      {"large_rows", {{301, 19}}, Cutting::rows},
      {"rows_of_blocks", {{37, 256}}, Cutting::rows},
      {"bands_of_blocks", {{27, 512}}, Cutting::bands},
      {"large_columns", {{61, 83}}, Cutting::columns},
      {"large_bands", {{105, 53}}, Cutting::bands},
      {"large_whole", {{71, 67}}},
      {"embedding", {{303, 17}, false, Param::Place::embedding}, Cutting::rows},
  };
  return kAll;
}

/// Returns piece `i` of `n` of `extent`, uneven on purpose: the first is as large as two others.
std::pair<std::int64_t, std::int64_t> piece(std::int64_t extent, int i, int n) {
  const auto bound = [&](int k) { return k == 0 ? 0 : extent * (k + 1) / (n + 1); };
  return {bound(i), bound(i + 1) - bound(i)};
}

std::vector<Box> boxes_of(const Tensor& tensor, int rank, int ranks) {
  const Box whole = Box::whole(tensor.param.shape);
  std::vector<Box> boxes;
  const auto add = [&](std::size_t d, std::int64_t from, std::int64_t extent, int i, int n) {
    const auto [begin, count] = piece(extent, i, n);
    Box& box = boxes.emplace_back(whole);
    box.start[d] = from + begin;
    box.extent[d] = count;
  };
  switch (tensor.cutting) {
    case Cutting::none:
      return {whole};
    case Cutting::rows:
      add(0, 0, whole.extent[0], rank, ranks);
      break;
    case Cutting::columns:
      add(1, 0, whole.extent[1], rank, ranks);
      break;
    case Cutting::bands:
      for (int band = 0; band < 3; ++band) {
        const auto [from, extent] = piece(whole.extent[0], band, 3);
        add(0, from, extent, rank, ranks);
      }
      break;
    case Cutting::held_twice:
      add(0, 0, whole.extent[0], rank / 2, (ranks + 1) / 2);
      break;
  }
  return boxes;
}

/// A unit as one tensor rank has it: tensors end at the same elements on all tensor ranks.
struct Unit {
  std::vector<Segment> segments;
  std::int64_t numel = 0;
};

Unit unit_of(int rank, int ranks, int slices) {
  Unit unit;
  std::int64_t number = 0;
  for (const Tensor& tensor : tensors()) {
    std::int64_t most = 0;
    for (int t = 0; t < ranks; ++t) most = std::max(most, static_cast<std::int64_t>(elements(boxes_of(tensor, t, ranks))));
    Segment segment;
    segment.boxes = boxes_of(tensor, rank, ranks);
    segment.end = unit.numel + most;
    segment.begin = segment.end - static_cast<std::int64_t>(elements(segment.boxes));
    segment.param = tensor.param;
    if (segment.boxes != std::vector{Box::whole(tensor.param.shape)})
      segment.param.cut = tensor.cutting == Cutting::columns ? Param::Cut::columns : Param::Cut::rows;
    if (tensor.param.shape.size() == 1) segment.decay_factor = 0.0;
    if (tensor.cutting == Cutting::columns) segment.lr_factor = 0.5;
    segment.number = number;
    number += tensor.param.numel();
    unit.numel = segment.end + 3;  // gaps are not updated
    unit.segments.push_back(std::move(segment));
  }
  unit.numel = (unit.numel + slices - 1) / slices * slices;
  return unit;
}

/// Values of a whole tensor; `step` 0 for weights.
at::Tensor values_of(std::size_t unit, std::size_t tensor, int step) {
  const auto seed = static_cast<std::uint64_t>(step) * 1000 + unit * 100 + tensor;
  return at::randn({tensors()[tensor].param.numel()}, at::detail::createCPUGenerator(seed), at::kDouble);
}

/// One rank's optimizer and buffers of two units. `slice` of `slices` belongs to this rank.
class Side {
 public:
  Side(const RuleSpec& rule, const Hyper& hyper, comm::Communicator* ranks, int rank, int tensor_ranks, int slices)
      : tensor_rank_(rank % tensor_ranks), unit_(unit_of(tensor_rank_, tensor_ranks, slices)) {
    chunk_ = unit_.numel / slices;
    first_ = chunk_ * (rank / tensor_ranks);
    std::vector<FlatParams> params;
    for (std::size_t u = 0; u < 2; ++u) {
      grads_.push_back(at::zeros({chunk_}, at::kDouble));
      params.push_back({fmt::format("unit {}", u), flat(u, 0), grads_.back(), unit_.segments, first_});
    }
    optimizer_ = std::make_unique<Optimizer>(rule, std::move(params), hyper, Precision::fp64(), ranks, tensor_ranks);
  }

  void step(int step) {
    for (std::size_t u = 0; u < 2; ++u) grads_[u].copy_(flat(u, step));
    optimizer_->step(1e-2 / step, 0.5);
  }

  const Unit& unit() const { return unit_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  std::int64_t begin() const { return first_; }
  /// Returns the range of this rank's elements of a tensor, counted in its boxes.
  std::pair<std::int64_t, std::int64_t> range(std::size_t tensor) const {
    const Segment& s = unit_.segments[tensor];
    const std::int64_t begin = std::max(s.begin, first_), end = std::min(s.end, first_ + chunk_);
    return {begin - s.begin, std::max(begin, end) - s.begin};
  }
  at::Tensor master(std::size_t unit, std::size_t tensor) const {
    const auto [begin, end] = range(tensor);
    return optimizer_->master(unit).narrow(0, begin < end ? unit_.segments[tensor].begin + begin - first_ : 0, end - begin);
  }

 private:
  /// Returns this rank's slice of a unit's values.
  at::Tensor flat(std::size_t u, int step) const {
    const at::Tensor all = at::zeros({unit_.numel}, at::kDouble);
    for (std::size_t i = 0; i < unit_.segments.size(); ++i) {
      const Segment& s = unit_.segments[i];
      const at::Tensor values = values_of(u, i, step);
      for (std::int64_t e = s.begin; e < s.end; ++e)
        all.data_ptr<double>()[e] =
            values.data_ptr<double>()[index_in_whole(s.boxes, s.param.shape, static_cast<std::uint64_t>(e - s.begin))];
    }
    return all.narrow(0, first_, chunk_).clone();
  }

  int tensor_rank_;
  Unit unit_;
  std::int64_t chunk_ = 0, first_ = 0;
  std::vector<at::Tensor> grads_;
  std::unique_ptr<Optimizer> optimizer_;
};

/// Returns the elements [begin, end) of the boxes, from the whole tensor.
at::Tensor of_boxes(const at::Tensor& whole, const std::vector<Box>& boxes, const Shape& shape, std::int64_t begin,
                    std::int64_t end) {
  const at::Tensor flat = whole.view(-1), indices = at::zeros({end - begin}, at::kLong);
  for (std::int64_t i = begin; i < end; ++i)
    indices.data_ptr<std::int64_t>()[i - begin] =
        static_cast<std::int64_t>(index_in_whole(boxes, shape, static_cast<std::uint64_t>(i)));
  return flat.index_select(0, indices);
}

/// Codes must be equal; numbers nearly.
bool alike(const at::Tensor& ours, const at::Tensor& expected) {
  return ours.scalar_type() == at::kByte ? ours.equal(expected) : at::allclose(ours, expected, 1e-12, 1e-13);
}

/// States that are laid out like their parameter lie with its elements; a state of the whole tensor is on one rank.
void compare_states(const Side& ours, const Side& one, std::size_t unit, std::size_t tensor) {
  const Segment &mine = ours.unit().segments[tensor], &whole = one.unit().segments[tensor];
  const auto held = ours.optimizer().held_states(unit, mine.begin), expected = one.optimizer().held_states(unit, whole.begin);
  ASSERT_EQ(held.size(), expected.size());
  const auto [begin, end] = ours.range(tensor);
  for (std::size_t k = 0; k < held.size(); ++k) {
    SCOPED_TRACE(std::string(held[k].spec.name));
    EXPECT_EQ(held[k].spec.shape, expected[k].spec.shape) << "a checkpoint does not depend on the ranks";
    const std::int64_t n = held[k].values.numel();
    if (held[k].spec.block_size == 0) {
      EXPECT_EQ(comm::all_reduce_value(world(), n > 0 ? 1 : 0), 1) << "one owner";
      if (n == 0) continue;
      EXPECT_TRUE(alike(held[k].values, expected[k].values.view(-1)));
    } else if (held[k].spec.block_size == 1) {
      ASSERT_EQ(n, end - begin);
      EXPECT_TRUE(alike(held[k].values, of_boxes(expected[k].values, mine.boxes, mine.param.shape, begin, end)));
    } else {
      const auto boxes = held[k].spec.boxes_of(mine.param.shape, mine.boxes);
      EXPECT_TRUE(
          alike(held[k].values, of_boxes(expected[k].values, boxes, held[k].spec.shape, held[k].begin, held[k].begin + n)));
    }
  }
}

/// Ranks that hold the same elements must not drift apart: their bits are equal.
void compare_holders(const Side& ours, std::size_t unit, int tensor_ranks) {
  const at::Tensor mine = ours.optimizer().master(unit);
  const auto chunk = mine.numel();
  const at::Tensor all = at::zeros({world().size(), chunk}, at::kDouble);
  world().all_gather(mine.data_ptr(), all.data_ptr(), static_cast<std::size_t>(chunk), DType::f64);
  const int first = world().rank() / tensor_ranks * tensor_ranks, tensor_rank = world().rank() % tensor_ranks;
  for (std::size_t i = 0; i < tensors().size(); ++i)
    for (int t = 0; t < tensor_rank; ++t) {
      const Segment& s = ours.unit().segments[i];
      if (boxes_of(tensors()[i], t, tensor_ranks) != s.boxes) continue;
      const std::int64_t begin = std::max<std::int64_t>(0, s.begin - ours.begin()), end = std::min(chunk, s.end - ours.begin());
      if (begin < end) {
        EXPECT_TRUE(all[first + t].narrow(0, begin, end - begin).equal(mine.narrow(0, begin, end - begin))) << tensors()[i].name;
      }
    }
}

void compare_with_one_rank(const RuleSpec& rule, const Hyper& hyper, int tensor_ranks) {
  const int slices = world().size() / tensor_ranks;
  SCOPED_TRACE(fmt::format("{}: {} slices x {} tensor ranks", rule.name, slices, tensor_ranks));
  Side ours(rule, hyper, &world(), world().rank(), tensor_ranks, slices), one(rule, hyper, nullptr, 0, 1, 1);
  for (int t = 1; t <= kUpdates; ++t) {
    ours.step(t);
    one.step(t);
  }
  for (std::size_t u = 0; u < 2; ++u) {
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      SCOPED_TRACE(fmt::format("{} of unit {}", tensors()[i].name, u));
      const auto [begin, end] = ours.range(i);
      const Segment& s = ours.unit().segments[i];
      const at::Tensor expected = of_boxes(one.master(u, i), s.boxes, s.param.shape, begin, end);
      EXPECT_TRUE(alike(ours.master(u, i), expected));
      compare_states(ours, one, u, i);
    }
    compare_holders(ours, u, tensor_ranks);
  }
}

std::vector<std::string> args_of(std::string_view rule) {
  if (rule == "GaLore") return {"rank=4,update_proj_gap=2"};
  if (rule == "APOLLO") return {"rank=4,update_proj_gap=2", "rank=4,update_proj_gap=2,proj=svd,scale_type=tensor"};
  if (rule == "SGD") return {"momentum=0.9"};
  return {""};
}

TEST(Owners, UpdateBoxesAsOneRankUpdatesTheWholeTensor) {
  for (const RuleSpec& rule : rules())
    for (const std::string& args : args_of(rule.name))
      for (int tensor_ranks = 1; tensor_ranks <= world().size(); ++tensor_ranks)
        if (world().size() % tensor_ranks == 0)
          compare_with_one_rank(rule, {.weight_decay = 0.1, .args = RuleArgs(args)}, tensor_ranks);
}

/// Each tensor rank reads other tensors' boxes from the same list.
std::string error_with(const std::vector<Box>& mine, const Shape& shape) {
  const auto n = static_cast<std::int64_t>(elements(mine));
  const at::Tensor weights = at::zeros({n}, at::kDouble), grads = at::zeros({n}, at::kDouble);
  Segment segment{0, n};
  segment.param = {shape};
  segment.param.cut = Param::Cut::rows;
  segment.boxes = mine;
  try {
    Optimizer(rule_of("muon"), {{"unit", weights, grads, {segment}}}, {}, Precision::fp64(), &world(), world().size());
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Owners, RefuseBoxesThatAreNotTheWholeTensor) {
  const std::int64_t rank = world().rank(), ranks = world().size();
  const auto says = [](const std::string& text, const char* part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  EXPECT_EQ(error_with({{{rank, 0}, {1, 5}}}, {ranks, 5}), "no error");
  says(error_with({{{rank, 0}, {1, 5}}}, {ranks + 1, 5}), "leave out");
  says(error_with({{{rank, 0}, {2, 5}}}, {ranks + 1, 5}), "overlap");
  says(error_with({{{rank, 0}, {1, 5}}}, {ranks, 5 + rank}), "other parameters");
}

}  // namespace
}  // namespace qft::optim
