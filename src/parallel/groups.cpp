#include "qft/parallel/groups.h"

#include "qft/comm/device_communicator.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace qft::parallel {
namespace {

using comm::Axes;
using comm::Axis;

/// The axes along which a group's ranks differ, if weights are sharded and if each rank has a whole copy.
struct GroupRow {
  std::string_view name;
  Axes sharded, whole;
  bool on_device;
};

constexpr Axes kEveryAxis = {Axis::replicate, Axis::pipeline, Axis::shard, Axis::context, Axis::tensor};

constexpr std::array<GroupRow, kPurposes> kGroups = {{
    // clang-format off
    // name     if sharded                                  if whole                          buffers on the device
    {"all",    kEveryAxis,                                 kEveryAxis,                       false},
    {"data",   comm::kDataAxes,                            comm::kDataAxes,                  false},
    {"slices", {Axis::shard, Axis::context},               {},                               true},
    {"copies", {Axis::replicate},                          {Axis::replicate, Axis::context}, true},
    {"context", {Axis::context},                           {Axis::context},                  true},
    {"tensor", {Axis::tensor},                             {Axis::tensor},                   true},
    {"owners", {Axis::shard, Axis::context, Axis::tensor}, {Axis::tensor},                   true},
    // clang-format on
}};

const GroupRow& row_of(Purpose purpose) {
  return kGroups[static_cast<std::size_t>(purpose)];
}

const Axes& axes_of(const GroupRow& row, bool sharded) {
  return sharded ? row.sharded : row.whole;
}

}  // namespace

comm::Place data_place(int rank, int ranks, int context_ranks, int tensor_ranks) {
  return comm::Mesh({.replicate = 0, .context = context_ranks, .tensor = tensor_ranks}, rank, ranks).place(comm::kDataAxes);
}

int group_size(Purpose purpose, const Sharding& sharding) {
  const int ranks = sharding.replicas * sharding.shard_ranks * sharding.context_ranks * sharding.tensor_ranks;
  return comm::Mesh(sharding.degrees(), 0, ranks).place(axes_of(row_of(purpose), sharding.strategy.sharded())).size;
}

int num_device_groups(const Sharding& sharding, bool optimizer) {
  int groups = 0;
  for (const Purpose purpose : {Purpose::slices, Purpose::copies, Purpose::context, Purpose::tensor, Purpose::owners}) {
    if (purpose == Purpose::owners && (!optimizer || sharding.tensor_ranks == 1)) continue;  // as Groups::owners()
    if (group_size(purpose, sharding) > 1) ++groups;
  }
  return groups;
}

Groups::Groups(comm::Communicator& world, c10::Device device, const Sharding& sharding)
    : world_(world.host()),
      device_(device),
      sharded_(sharding.strategy.sharded()),
      mesh_(sharding.degrees(), world.rank(), world.size()) {}

bool Groups::is_lead() const {
  return mesh_.coordinate(Axis::pipeline) == mesh_.degree(Axis::pipeline) - 1 && mesh_.coordinate(Axis::context) == 0 &&
         mesh_.coordinate(Axis::tensor) == 0;
}

void Groups::sum_of_data_ranks(std::span<double> values) const {
  if (!is_lead()) std::ranges::fill(values, 0.0);
  all().all_reduce(values.data(), values.size(), DType::f64);
}

comm::Communicator& Groups::group(Purpose purpose) const {
  const GroupRow& row = row_of(purpose);
  const Axes& axes = axes_of(row, sharded_);
  if (!row.on_device && mesh_.place(axes).size == world_.size()) return world_;
  auto& group = groups_[static_cast<std::size_t>(purpose)];
  if (!group) group = make(purpose, axes);
  return *group;
}

std::unique_ptr<comm::Communicator> Groups::make(Purpose purpose, const Axes& axes) const {
  const GroupRow& row = row_of(purpose);
  const std::string name(row.name);
  const c10::Device device = row.on_device ? device_ : c10::Device(c10::kCPU);
  if (mesh_.place(axes).size == 1) return comm::make_self_communicator(name, device);
  auto group = world_.split(mesh_.group_number(axes), world_.rank(), name);
  return device.is_cpu() ? std::move(group) : comm::make_device_communicator(*group, device, name);
}

}  // namespace qft::parallel
