#include "device_group.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/stream_trace.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "backoff.h"
#include "call.h"
#include <c10/core/impl/VirtualGuardImpl.h>

namespace qft::comm {
namespace {

constexpr std::chrono::seconds kInitLimit{180}, kFinalizeLimit{10};
constexpr std::size_t kMaxInFlight = 256;  // beyond this, launch() drops finished collectives itself, in case no watchdog does

/// All groups of this process.
struct Groups {
  std::mutex mutex;
  std::vector<DeviceGroup*> all;
};
Groups& groups() {
  static Groups one;
  return one;
}

}  // namespace

void fail_in(const CollectiveLibrary& library, CollectiveLibrary::Group group, std::string_view what) {
  fail("{}: {} failed: {}: {}", library.version(), what, library.last_error(group), library.advice());
}

DeviceGroup::DeviceGroup(const CollectiveLibrary& library, const CollectiveLibrary::UniqueId& id, int rank, int size,
                         c10::Device device, std::string name)
    : library_(library),
      device_(device),
      name_(std::move(name)),
      key_(std::hash<std::string_view>{}({id.data(), id.size()}) | 1U),
      size_(size) {
  try {
    complete(library_.init(group_, size, id, rank), "init", kInitLimit);
  } catch (...) {
    if (group_ != nullptr) library_.abort(group_);
    throw;
  }
  const std::lock_guard lock(groups().mutex);
  groups().all.push_back(this);
}

DeviceGroup::~DeviceGroup() {
  {
    const std::lock_guard lock(groups().mutex);
    std::erase(groups().all, this);
  }
  if (is_aborted_) return;
  if (std::uncaught_exceptions() > 0 || !finalize()) {
    abort();
  } else {
    library_.destroy(group_);
  }
}

std::string DeviceGroup::call_name(std::string_view what) const {
  return fmt::format("{} in group {}", what, name_);
}

DeviceGroup::Result DeviceGroup::state() const {
  const std::lock_guard lock(library_mutex_);
  require(!is_aborted_, "{}: group {} was aborted", library_.version(), name_);
  return library_.state(group_);
}

void DeviceGroup::enter_device() const {
  c10::impl::VirtualGuardImpl(device_.type()).setDevice(device_);
}

void DeviceGroup::complete(Result result, std::string_view what, std::chrono::seconds limit) const {
  const activity::Waiting waiting;
  for (const Backoff backoff; result == Result::in_progress;) {
    result = state();
    if (result != Result::in_progress) break;
    require(limit.count() == 0 || backoff.waited() < limit,
            "{}: {} did not finish within {} s: a rank is missing, or the network between the devices does not work: {}",
            library_.version(), call_name(what), limit.count(), library_.advice());
    backoff.pause();
  }
  if (result != Result::ok) fail_in(library_, group_, call_name(what));
}

bool DeviceGroup::finalize() const noexcept {
  try {
    complete(library_.finalize(group_), "finalize", kFinalizeLimit);
    return true;
  } catch (const std::exception& e) {
    log::warn("{}", e.what());
    return false;
  }
}

void DeviceGroup::abort() noexcept {
  std::call_once(aborted_, [this] {
    const std::lock_guard lock(library_mutex_);
    is_aborted_ = true;
    library_.abort(group_);
  });
}

std::shared_ptr<const device::Event> DeviceGroup::launch(const device::Stream& stream, std::string_view what, const Post& post) {
  require(!is_aborted_, "{}: {}, which was aborted", library_.version(), call_name(what));
  device::Event ready(device_);
  ready.record(device::Stream::current(device_));
  stream.wait(ready);
  const auto note = last_note();
  const device::StreamSpan span(stream, "stream: collectives", [&] {
    return fmt::format("{}: {}", note.communicator.data(), describe(note.kind, note.dtype, note.count, note.op, note.peer));
  });
  library_.group_start();
  Result posted = Result::failed;
  try {
    posted = post(library_, group_, stream.native());
  } catch (...) {
    library_.group_end();
    throw;
  }
  const Result ended = library_.group_end();
  if (posted == Result::failed) fail_in(library_, group_, call_name(what));
  // The first collectives connect, and wait for ranks with earlier work. Only the watchdog can judge how long that may take.
  complete(ended, what, std::chrono::seconds(0));
  auto done = std::make_shared<device::Event>(device_);
  done->record(stream);
  // a pair's messages do not count in the group's numbers
  if (note.kind == OpKind::send || note.kind == OpKind::recv) return done;
  const std::lock_guard lock(mutex_);
  if (in_flight_.size() >= kMaxInFlight) forget_finished();
  in_flight_.push_back({note, std::move(ready), done});
  called_ = note.number;
  return done;
}

void DeviceGroup::check_async() const {
  if (state() == Result::failed) fail_in(library_, group_, call_name("a started operation"));
}

std::string DeviceGroup::failure() {
  {
    const std::lock_guard lock(mutex_);
    if (!device_error_.empty()) return device_error_;
  }
  const std::lock_guard lock(library_mutex_);
  if (is_aborted_ || library_.state(group_) != Result::failed) return {};
  return library_.last_error(group_);
}

void DeviceGroup::forget_finished() {
  for (; !in_flight_.empty() && in_flight_.front().done->query(); in_flight_.pop_front())
    finished_ = in_flight_.front().note.number;
}

DeviceCollectives DeviceGroup::progress() {
  const std::lock_guard lock(mutex_);
  const auto known = [&] { return DeviceCollectives{key_, called_, finished_, finished_, size_, {}}; };
  if (!device_error_.empty()) return known();
  try {
    enter_device();
    forget_finished();
    DeviceCollectives all = known();
    if (in_flight_.empty()) return all;
    all.next = in_flight_.front().note;
    if (in_flight_.front().ready.query()) all.reached = all.next.number;
    return all;
  } catch (const std::exception& e) {
    device_error_ =
        fmt::format("{}: {}", device_.str(), e.what());  // the rank's own thread sees the error too, and ends the job cleanly
    return known();
  }
}

AllDeviceCollectives device_collectives() {
  const std::lock_guard lock(groups().mutex);
  std::vector<DeviceCollectives> found;
  for (DeviceGroup* group : groups().all) found.push_back(group->progress());
  std::ranges::stable_sort(found, std::greater<>(), &DeviceCollectives::open);
  AllDeviceCollectives most{};
  std::copy_n(found.begin(), std::min(found.size(), most.size()), most.begin());
  return most;
}

std::string device_failure() {
  const std::lock_guard lock(groups().mutex);
  for (DeviceGroup* group : groups().all)
    if (std::string text = group->failure(); !text.empty()) return text;
  return {};
}

void abort_device_groups() {
  const std::lock_guard lock(groups().mutex);
  for (DeviceGroup* group : groups().all) group->abort();
}

}  // namespace qft::comm
