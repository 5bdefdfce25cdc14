#include "capture.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <utility>

#include "memory.h"
#include "pinned.h"
#include "report.h"
#include <c10/util/Exception.h>

namespace qft::sim {

std::vector<Capture*>& captures() {
  static auto* const all = new std::vector<Capture*>;
  return *all;
}

namespace {

std::atomic<bool> refusing{false};
constexpr const char* kRefusal = "the host would wait for the simulated device";

template <class Is>
Capture* find_capture(const Is& is) {
  const auto found = std::find_if(captures().begin(), captures().end(), [&](const Capture* c) { return is(*c); });
  return found == captures().end() ? nullptr : *found;
}

void check_live(const std::string& name, int stream, const Access& access) {
  const DeviceMemory* memory = memory_of(access.data);
  if (memory == nullptr || access.bytes == 0) return;
  if (const auto error = memory->why_not_live(access.data, access.bytes); !error.empty())
    fail_use(c10::str("sim: '", name, "' in ", stream_name(stream), access.write ? " writes " : " reads ", access.bytes,
                      " bytes ", error));
}

/// Pageable memory is not tracked: copies take its values immediately, or the host waits for them.
bool tracked(const Access& access) {
  return memory_of(access.data) != nullptr || pinned_memory().contains(access.data, access.bytes);
}

void check_and_note(Uses& seen, const Clock& clock, const std::string& name, const Use& use,
                    const std::vector<Access>& accesses) {
  const auto at = [](const Access& a) { return reinterpret_cast<Uses::Address>(a.data); };
  for (const Access& a : accesses)
    if (const auto conflict = tracked(a) ? seen.conflict(at(a), at(a) + a.bytes, a.write, clock) : std::nullopt)
      fail_use(describe_conflict(name, use.stream, a.write, *conflict));
  for (const bool write : {false, true})  // a piece of work counts as writer of everything it writes, even if it also reads it
    for (const Access& a : accesses)
      if (a.write == write && tracked(a)) seen.note(at(a), at(a) + a.bytes, write, use);
}

void record(Capture& capture, int stream, Work work, const std::vector<Access>& accesses) {
  auto& lane = capture.lanes.at(stream);
  Clock clock = lane.clock;
  advance(clock, stream, lane.pushed + 1);
  check_and_note(capture.uses, clock, work.name, {stream, lane.pushed + 1, std::make_shared<std::string>(work.name)}, accesses);
  ++lane.pushed;
  lane.clock = std::move(clock);
  std::vector<Access> kept;
  std::copy_if(accesses.begin(), accesses.end(), std::back_inserter(kept), tracked);
  capture.recorded.push_back({std::move(work.name), std::move(kept), std::move(work.run), work.blocking});
}

}  // namespace

Capture* capture_of(int stream) {
  return find_capture([&](const Capture& c) { return c.lanes.contains(stream); });
}
Capture* capture_of_this_thread() {
  return find_capture([](const Capture& c) { return c.thread == std::this_thread::get_id(); });
}
Capture* capture_numbered(std::uint64_t number) {
  return find_capture([&](const Capture& c) { return c.number == number; });
}

Capture* capture_for(int stream, const std::string& name) {
  Capture* const capture = capture_of(stream);
  Capture* const own = capture_of_this_thread();
  if (capture == own) return own;
  if (capture == nullptr)
    fail_use(c10::str("sim: '", name, "' in ", stream_name(stream), " is not part of the capture of ", stream_name(own->origin),
                      " by this thread: let it wait for an event of the capture"));
  fail_use(c10::str("sim: '", name, "' in ", stream_name(stream), ", which another thread captures"));
}

Uses& uses() {
  static auto* const all = new Uses;
  return *all;
}

std::string describe_conflict(const std::string& who, int stream, bool write, const Uses::Conflict& conflict) {
  const std::string other = conflict.use.name ? *conflict.use.name : "?";
  const std::string where = stream_name(conflict.use.stream);
  return c10::str("sim: '", who, "' in ", stream_name(stream), write ? " writes" : " reads", " what '", other, "' in ", where,
                  conflict.writes ? " writes" : " reads", ", with no order between them, at ",
                  describe_address(reinterpret_cast<const void*>(conflict.address)), ": let ", stream_name(stream),
                  " wait for an event recorded in ", where, " after it");
}

void submit(Lock& lock, int stream, Work work, const std::vector<Access>& accesses) {
  TORCH_INTERNAL_ASSERT(lock.owns_lock());
  throw_reported();
  Capture* const capture = capture_for(stream, work.name);
  for (const Access& a : accesses) check_live(work.name, stream, a);
  if (capture != nullptr) return record(*capture, stream, std::move(work), accesses);
  Clock clock = queues().clock(stream);
  join(clock, queues().host());
  const std::uint64_t at = queues().last(stream).at + 1;
  advance(clock, stream, at);
  check_and_note(uses(), clock, work.name, {stream, at, std::make_shared<std::string>(work.name)}, accesses);
  queues().push(stream, std::move(work));
}

void submit_again(Lock& lock, int stream, const Recorded& recorded) {
  const std::string name = "graph: " + recorded.name;
  for (const Access& a : recorded.accesses)
    if (!tracked(a))
      fail_use(c10::str("sim: '", name, "' in ", stream_name(stream), " uses ", a.bytes, " bytes of freed pinned memory"));
  submit(lock, stream, Work{name, recorded.run, {}, recorded.blocking, true}, recorded.accesses);
}

void check_wait(const char* what) {
  throw_reported();
  TORCH_CHECK(!refusing, kRefusal, " in ", what);
  if (const Capture* capture = capture_of_this_thread())
    fail_use(c10::str("sim: ", what, " waits for the device in the capture of ", stream_name(capture->origin)));
}
void refuse_waits(bool refuse) {
  refusing = refuse;
}
bool is_refusal(std::string_view what) {
  return what.find(kRefusal) != std::string_view::npos;
}

void enqueue(const c10::Stream& stream, std::string name, std::vector<Access> accesses, std::function<void()> work) {
  Lock lock = lock_machine();
  auto run = [work = std::move(work)] {
    work();
    return Progress::done;
  };
  submit(lock, stream_index(stream), Work{std::move(name), std::move(run), {}, false, true}, accesses);
}

void enqueue_blocking(const c10::Stream& stream, std::string name, std::vector<Access> accesses, std::function<Progress()> work) {
  Lock lock = lock_machine();
  submit(lock, stream_index(stream), Work{std::move(name), std::move(work), {}, true, true}, accesses);
}

Counters counters() {
  const Lock lock = lock_machine();
  return queues().counters;
}

}  // namespace qft::sim
