#include "qft/parallel/whole_tensors.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/device/box_copy.h"
#include "qft/device/scalar_type.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

namespace qft::parallel {
namespace {

using nlohmann::json;

json to_json(const std::vector<Box>& boxes) {
  json list = json::array();
  for (const Box& box : boxes) list.push_back({box.start, box.extent});
  return list;
}

std::vector<Box> boxes_from_json(const json& list) {
  std::vector<Box> boxes;
  for (const json& box : list) boxes.push_back({box.at(0).get<Shape>(), box.at(1).get<Shape>()});
  return boxes;
}

std::int64_t count_of(const std::vector<Box>& boxes) {
  return static_cast<std::int64_t>(elements(boxes));
}

}  // namespace

WholeTensors::WholeTensors(const model::ModelSpec& spec, comm::Communicator& tensor, c10::Device device,
                           const std::function<bool(const model::ParamSpec&)>& wanted)
    : tensor_(tensor.host()), staged_(device) {
  if (tensor_.size() == 1) return;
  json mine = json::object();
  for (const model::UnitSpec& unit : spec.units)
    for (const model::ParamSpec& p : unit.params)
      if (!p.is_whole()) mine[p.name] = {to_json(p.boxes), wanted(p)};
  for (const std::string& text : comm::all_gather_strings(tensor_, mine.dump())) {
    const json theirs = json::parse(text);
    for (const auto& [name, held] : theirs.items()) {
      Holders& holders = holders_[name];
      Held next{boxes_from_json(held.at(0)), held.at(1).get<bool>()};
      next.first = std::ranges::find(holders, next.boxes, &Held::boxes) == holders.end();
      holders.push_back(std::move(next));
    }
  }
  for (const model::UnitSpec& unit : spec.units)
    for (const model::ParamSpec& p : unit.params) {
      const auto found = holders_.find(p.name);
      if (found == holders_.end()) continue;
      const Holders& holders = found->second;
      QFT_ASSERT(std::ssize(holders) == tensor_.size(), "{} of {} tensor ranks hold a part of '{}'", holders.size(),
                 tensor_.size(), p.name);
      const bool any = std::ranges::any_of(holders, &Held::wanted);
      if (any) largest_own_ = std::max(largest_own_, p.numel);
      if (!holders[static_cast<std::size_t>(tensor_.rank())].wanted) continue;
      largest_whole_ = std::max(largest_whole_, count_of({Box::whole(p.shape)}));
      for (const Held& held : holders) largest_part_ = std::max(largest_part_, count_of(held.boxes));
    }
}

void WholeTensors::reserve(at::ScalarType type) {
  const auto take = [&](at::Tensor& room, std::int64_t count) {
    if (!room.defined() || room.scalar_type() != type) room = at::empty({count}, at::TensorOptions().dtype(type));
  };
  take(whole_, largest_whole_);
  take(part_, largest_part_);
  take(own_, largest_own_);
  if (largest_own_ > 0) staged_.reserve();
}

at::Tensor WholeTensors::on_host(const at::Tensor& values) {
  if (values.is_cpu() && values.is_contiguous()) return values;
  const at::Tensor own = own_.narrow(0, 0, values.numel());
  staged_.to_host(own, values);
  return own;
}

at::Tensor WholeTensors::put_together(const model::ParamSpec& param, const at::Tensor& values) {
  const auto found = holders_.find(param.name);
  if (found == holders_.end()) return values;
  const Holders& holders = found->second;
  if (std::ranges::none_of(holders, &Held::wanted)) return {};
  reserve(values.scalar_type());
  const at::Tensor own = on_host(values);
  const DType type = device::dtype_of(own.scalar_type());
  const auto rank = static_cast<std::size_t>(tensor_.rank());
  at::Tensor whole;
  if (holders[rank].wanted) {
    whole = whole_.narrow(0, 0, count_of({Box::whole(param.shape)})).view(param.shape);
    device::from_boxes(own, holders[rank].boxes, whole);
  }
  for (std::size_t to = 0; to < holders.size(); ++to)
    for (std::size_t from = 0; holders[to].wanted && from < holders.size(); ++from) {
      if (!holders[from].first || holders[from].boxes == holders[to].boxes) continue;
      const std::int64_t count = count_of(holders[from].boxes);
      if (from == rank) tensor_.send(own.data_ptr(), static_cast<std::size_t>(count), type, static_cast<int>(to));
      if (to != rank) continue;
      const at::Tensor part = part_.narrow(0, 0, count);
      tensor_.recv(part.data_ptr(), static_cast<std::size_t>(count), type, static_cast<int>(from));
      device::from_boxes(part, holders[from].boxes, whole);
    }
  return whole.defined() ? whole.view(-1) : whole;
}

}  // namespace qft::parallel
