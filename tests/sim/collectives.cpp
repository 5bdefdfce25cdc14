#include "collectives.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "collectives_faults.h"
#include "collectives_group.h"
#include "report.h"
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace qft::sim::collectives {
namespace {

using Library = comm::CollectiveLibrary;
using Result = Library::Result;
using comm::ReduceOp;

// Groups by handle; handles are never reused.

struct Groups {
  std::mutex mutex;
  std::map<std::uintptr_t, std::shared_ptr<Group>> live;
  std::map<std::uintptr_t, std::string> gone;
  std::uintptr_t last = 0;
  std::string error;  ///< last error of the process
};
Groups& groups() {
  static auto* const all = new Groups;
  return *all;
}

Result fail(const std::string& why, Group* group = nullptr) {
  if (group != nullptr) group->note(why);
  const std::lock_guard lock(groups().mutex);
  groups().error = why;
  return Result::failed;
}

std::uintptr_t number(Library::Group handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

/// Returns null for an invalid handle and stores the reason in the process's last error.
std::shared_ptr<Group> find(Library::Group handle, std::string_view what) {
  const std::lock_guard lock(groups().mutex);
  if (const auto found = groups().live.find(number(handle)); found != groups().live.end()) return found->second;
  const auto gone = groups().gone.find(number(handle));
  groups().error =
      c10::str("a call of ", what, " on a group that was ", gone == groups().gone.end() ? "never made" : gone->second);
  return nullptr;
}

// The calls of this thread between group_start and group_end.

struct Batch {
  ~Batch() {
    if (depth > 0) report(describe_open() + ": its thread has ended");
  }
  std::string describe_open() const {
    return c10::str("sim: a group_start without group_end",
                    posted.empty() ? std::string()
                                   : ", after which " + describe(posted.front().second.front().operation.call) + " was called");
  }
  void drop() {
    for (auto& [group, operations] : posted) group->drop();
    posted.clear();
    failed = false;
  }
  int depth = 0;
  bool failed = false;
  std::vector<std::pair<std::shared_ptr<Group>, std::vector<Posted>>> posted;
};
thread_local Batch batch;

// Checks of arguments.

/// Returns why [data, data + bytes) is not memory of the group's device; empty if it is.
std::string why_not(const Group& group, const char* what, const void* data, std::size_t bytes) {
  if (bytes == 0) return {};
  if (const auto allocation = is_device_memory(data, bytes)) {
    if (allocation->device == group.device()) return {};
    return c10::str(what, " is memory of device ", static_cast<int>(allocation->device), ", but the group was made for device ",
                    static_cast<int>(group.device()));
  }
  if (const auto allocation = is_device_memory(data, 1)) {
    const auto offset = static_cast<const std::byte*>(data) - static_cast<const std::byte*>(allocation->data);
    return c10::str(what, " has ", bytes, " bytes from byte ", offset, " of allocation ", allocation->number, ", which has ",
                    allocation->bytes, " bytes (by '", allocation->operation, "'", allocation->label.empty() ? "" : ", ",
                    allocation->label, ")");
  }
  if (is_pinned_memory(data, 1)) return c10::str(what, " (", data, ") is pinned memory of the host");
  return c10::str(what, " (", data, ") is ",
                  writable(data) == data ? "memory of the host" : "memory of the device that is not allocated: it was freed");
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto* const x = static_cast<const std::byte*>(a);
  const auto* const y = static_cast<const std::byte*>(b);
  return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

std::string why_not(const Group& group, const Operation& operation) {
  const Call& call = operation.call;
  const bool root = call.other == group.rank();
  const bool gathers = call.kind == Kind::all_gather;
  const bool scatters = call.kind == Kind::reduce_scatter;
  const bool sends = call.kind != Kind::recv && (call.kind != Kind::broadcast || root);
  const bool receives = call.kind != Kind::send && (call.kind != Kind::reduce || root);
  const std::size_t bytes = bytes_of(call);
  const std::size_t all = bytes * static_cast<std::size_t>(group.size());
  if (call.kind == Kind::broadcast || call.kind == Kind::reduce || is_message(call))
    if (call.other < 0 || call.other >= group.size()) return c10::str("rank ", call.other, " is none of ", group.size());
  if (reduces(call) && call.dtype == DType::i16) return "no library reduces I16: use I32";
  if (std::string why = sends ? why_not(group, "its send buffer", operation.send, scatters ? all : bytes) : ""; !why.empty())
    return why;
  if (std::string why = receives ? why_not(group, "its receive buffer", operation.recv, gathers ? all : bytes) : ""; !why.empty())
    return why;
  // A slice is in place if it is this rank's slice.
  const auto* const send = static_cast<const std::byte*>(operation.send);
  const auto* const recv = static_cast<const std::byte*>(operation.recv);
  const auto slice = static_cast<std::size_t>(group.rank()) * bytes;
  const bool in_place = gathers ? send == recv + slice : scatters ? recv == send + slice : send == recv;
  if (sends && receives && !in_place && overlap(send, scatters ? all : bytes, recv, gathers ? all : bytes))
    return "its send and receive buffers overlap, but not as in place";
  return {};
}

class SimCollectives final : public Library {
 public:
  std::string version() const override { return "simulated collectives"; }
  std::string obstacle() const override { return {}; }
  std::string advice() const override { return "QFT_SIM_COLLECTIVE_FAULT may have asked for it"; }
  std::int64_t group_bytes(int /*ranks*/) const override { return 0; }
  std::string last_error(Library::Group handle) const override {
    const std::lock_guard lock(groups().mutex);
    const auto group = groups().live.find(number(handle));
    const std::string failure = group == groups().live.end() ? "" : group->second->failure();
    if (!failure.empty()) return failure;
    return groups().error.empty() ? "no detail" : groups().error;
  }

  Result unique_id(UniqueId& id) const override {
    return guarded([&] {
      id.fill('\0');
      const std::string text = Shared::make_id();
      text.copy(id.data(), id.size() - 1);
      return Result::ok;
    });
  }
  Result init(Library::Group& handle, int size, const UniqueId& id, int rank) const override {
    handle = nullptr;
    return guarded([&] {
      const auto device = c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->getDevice().index();
      auto group = std::make_shared<collectives::Group>(std::string(id.data()), rank, size, device);
      const std::lock_guard lock(groups().mutex);
      handle = reinterpret_cast<Library::Group>(++groups().last);  // NOLINT: a name, never followed
      groups().live[groups().last] = std::move(group);
      return Result::in_progress;
    });
  }
  Result state(Library::Group handle) const override {
    const auto group = find(handle, "state");
    return group == nullptr ? Result::failed : group->state();
  }
  Result finalize(Library::Group handle) const override {
    const auto group = find(handle, "finalize");
    if (group == nullptr) return Result::failed;
    const std::string why = batch.depth > 0 ? batch.describe_open() + ": finalize" : group->finalize();
    return why.empty() ? Result::in_progress : fail(why, group.get());
  }
  void destroy(Library::Group handle) const override {
    if (batch.depth > 0) report(batch.describe_open() + ": destroy");
    end(handle, "destroy", "destroyed");
  }
  void abort(Library::Group handle) const override {
    if (const auto group = end(handle, "abort", "aborted")) group->abort();
  }

  Result group_start() const override {
    ++batch.depth;
    return Result::ok;
  }
  Result group_end() const override {
    if (batch.depth == 0) return fail("a group_end without group_start");
    if (--batch.depth > 0) return Result::ok;
    if (batch.failed) {
      batch.drop();
      return Result::failed;
    }
    if (batch.posted.empty()) return Result::ok;
    for (auto& [group, operations] : batch.posted) group->post(std::move(operations));
    batch.posted.clear();
    return Result::in_progress;
  }

  Result broadcast(const void* send, void* recv, std::size_t bytes, int root, Library::Group group,
                   Stream stream) const override {
    return post({{Kind::broadcast, DType::u8, ReduceOp::sum, root, bytes}, send, recv}, group, stream);
  }
  Result all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Library::Group group, Stream stream) const override {
    return post({{Kind::all_reduce, dtype, op, -1, count}, data, data}, group, stream);
  }
  Result reduce(const void* send, void* recv, std::size_t count, DType dtype, ReduceOp op, int root, Library::Group group,
                Stream stream) const override {
    return post({{Kind::reduce, dtype, op, root, count}, send, recv}, group, stream);
  }
  Result reduce_scatter(const void* send, void* recv, std::size_t count, DType dtype, ReduceOp op, Library::Group group,
                        Stream stream) const override {
    return post({{Kind::reduce_scatter, dtype, op, -1, count}, send, recv}, group, stream);
  }
  Result all_gather(const void* send, void* recv, std::size_t bytes, Library::Group group, Stream stream) const override {
    return post({{Kind::all_gather, DType::u8, ReduceOp::sum, -1, bytes}, send, recv}, group, stream);
  }
  Result send(const void* data, std::size_t bytes, int peer, Library::Group group, Stream stream) const override {
    return post({{Kind::send, DType::u8, ReduceOp::sum, peer, bytes}, data, nullptr}, group, stream);
  }
  Result recv(void* data, std::size_t bytes, int peer, Library::Group group, Stream stream) const override {
    return post({{Kind::recv, DType::u8, ReduceOp::sum, peer, bytes}, nullptr, data}, group, stream);
  }

 private:
  template <class F>
  static Result guarded(const F& f) {
    try {
      return f();
    } catch (const c10::Error& e) {
      return fail(e.what_without_backtrace());
    }
  }

  static std::shared_ptr<collectives::Group> end(Library::Group handle, const char* what, const char* ended) {
    auto group = find(handle, what);
    const std::lock_guard lock(groups().mutex);
    if (group == nullptr) {
      report("sim: " + groups().error);
      return nullptr;
    }
    groups().live.erase(number(handle));
    groups().gone[number(handle)] = ended;
    return group;
  }

  static Result post(const Operation& operation, Library::Group handle, Stream stream) {
    const std::string what = describe(operation.call);
    const auto group = find(handle, what);
    if (group == nullptr) {
      batch.failed = batch.depth > 0;
      return Result::failed;
    }
    const Result result = guarded([&] { return add(operation, group, stream); });
    if (result == Result::failed) {
      batch.failed = batch.depth > 0;
      return result;
    }
    if (batch.depth > 0) return Result::ok;
    group->post(std::move(batch.posted.back().second));
    batch.posted.clear();
    return Result::in_progress;
  }

  /// Adds the operation to the batch.
  static Result add(const Operation& operation, const std::shared_ptr<collectives::Group>& group, Stream stream) {
    Posted posted{operation, stream_of(stream)};
    const std::string what = c10::str(describe(operation.call), " of rank ", group->rank(), " of ", group->size());
    if (const std::string why = group->claim(what); !why.empty()) return fail(why, group.get());
    std::string why = why_not(*group, operation);
    if (posted.stream.device_index() != group->device()) why = "its stream is of another device than the group";
    for (const Fault fault : faults_of_next(group->rank())) {
      if (fault == Fault::call) why = "told to fail";
      posted.stalls = posted.stalls || fault == Fault::stall;
      posted.error_follows = posted.error_follows || fault == Fault::error;
    }
    auto& all = batch.posted;
    auto found = std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.first == group; });
    if (!why.empty()) {
      if (found == all.end()) group->drop();
      return fail(what + ": " + why, group.get());
    }
    if (found == all.end()) found = all.insert(all.end(), {group, {}});
    found->second.push_back(posted);
    return Result::ok;
  }
};

}  // namespace

}  // namespace qft::sim::collectives

namespace qft::sim {

const void* comm_part() {
  static const auto* const library = new collectives::SimCollectives;
  return static_cast<const comm::CollectiveLibrary*>(library);
}

}  // namespace qft::sim
