// Checks every collective among all ranks and among parts of them, in several types and sizes.
#include "qft/comm/bandwidth.h"
#include "qft/comm/device_communicator.h"
#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/units.h"

#include <algorithm>
#include <memory>

#include "runner.h"

namespace qft::selftest {
namespace {

constexpr Subject kCollectives{"collectives", "values",
                               "ranks train on wrong sums and slices: the loss is silently wrong, or ranks drift apart",
                               "try another transport (mpirun --mca pml ob1 --mca btl tcp,self; NCCL_P2P_DISABLE=1, "
                               "NCCL_IB_DISABLE=1), then fewer nodes, to find "
                               "the link; mpirun -np N qft check names slow ones"};
constexpr Subject kGroups{"collectives", "groups", "no job of several ranks starts on this device",
                          "read the error: it names the library; NCCL_DEBUG=INFO prints more"};

/// Makes a group of ranks. Returns null and fails the check if a rank cannot make it.
std::unique_ptr<comm::Communicator> make(Runner& runner, const std::string& name,
                                         const std::function<std::unique_ptr<comm::Communicator>()>& group) {
  std::unique_ptr<comm::Communicator> made;
  bool checked = false;
  runner.check(kGroups, name, [&](Outcome&) {
    checked = true;
    made = group();
  });
  if (!checked) made = group();  // excluded by name, but other checks need it
  const bool all = comm::all_reduce_value(runner.session().world(), made ? 1 : 0, comm::ReduceOp::min) == 1;
  if (!all) made.reset();
  return made;
}

std::string text_of(std::string_view group, const comm::Communicator& comm, const comm::CollectiveTrial& trial) {
  std::string type(safetensors_name(trial.dtype));
  std::ranges::transform(type, type.begin(), [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
  return fmt::format("{} ({}), {}, {} a rank{}", group, comm.backend(), type, count_noun(trial.count, "element"),
                     trial.uneven ? ", uneven" : "");
}

void check_one(Runner& runner, comm::Communicator& comm, c10::Device device, std::string_view group,
               const comm::CollectiveTrial& trial) {
  runner.check(kCollectives, text_of(group, comm, trial), [&](Outcome& out) {
    const auto wrong = comm::verify_collectives(comm, device, trial);
    std::string all;
    for (const std::string& text : wrong) all += (all.empty() ? "" : "; ") + text;
    out.hold("the values", wrong.empty(), all);
  });
}

}  // namespace

void check_group(Runner& runner, comm::Communicator& comm, c10::Device device, std::string_view name) {
  // At most a few MB over all ranks.
  const std::size_t large = std::max<std::size_t>(1009, (std::size_t{1} << 20) / static_cast<std::size_t>(comm.size()) + 3);
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8})
    for (const std::size_t count : {std::size_t{1}, std::size_t{1009}, large})
      check_one(runner, comm, device, name, {dtype, count});
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1009}, std::size_t{30011}})
    for (const bool uneven : {false, true}) check_one(runner, comm, device, name, {DType::f32, count, uneven});
}

void check_collectives(Runner& runner) {
  comm::Session& session = runner.session();
  comm::Communicator& world = session.world();
  const c10::Device device = runner.device();
  const auto on_device = make(runner, "all ranks", [&] { return comm::make_device_communicator(world, device, "all ranks"); });
  if (on_device) check_group(runner, *on_device, device, "all ranks");
  if (!device.is_cpu()) check_group(runner, world, c10::kCPU, "all ranks' host memory");
  if (!on_device || session.size() == 1) return;
  const auto half = make(runner, "halves", [&] { return on_device->split(session.rank() % 2, session.rank(), "half"); });
  const auto reversed = make(runner, "all ranks, reversed", [&] { return on_device->split(0, -session.rank(), "reversed"); });
  for (const comm::CollectiveTrial& trial : {comm::CollectiveTrial{}, {DType::bf16, 1009}, {DType::f32, 1009, true}}) {
    if (half) check_one(runner, *half, device, "halves", trial);
    if (reversed) check_one(runner, *reversed, device, "all ranks, reversed", trial);
  }
}

}  // namespace qft::selftest
