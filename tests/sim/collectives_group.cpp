#include "collectives_group.h"

#include <algorithm>

#include "capture.h"
#include "collectives_faults.h"

namespace qft::sim::collectives {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;
constexpr auto kBetweenLooks = 20ms;
constexpr auto kGrace = 20s;  // time for an abort() after a failure
constexpr auto kAbortLimit = 5s;

void order(const c10::Stream& first, const c10::Stream& second) {
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(first);
  event.block(second);
}

void add_accesses(const Group& group, const Operation& operation, std::vector<Access>& accesses) {
  const Call& call = operation.call;
  const std::size_t bytes = bytes_of(call);
  const auto all = bytes * static_cast<std::size_t>(group.size());
  const bool root = call.other == group.rank();
  const auto add = [&](const void* data, std::size_t size, bool write) {
    if (size > 0) accesses.push_back({data, size, write});
  };
  if (call.kind != Kind::recv && (call.kind != Kind::broadcast || root))
    add(operation.send, call.kind == Kind::reduce_scatter ? all : bytes, false);
  if (call.kind != Kind::send && (call.kind != Kind::reduce || root))
    add(operation.recv, call.kind == Kind::all_gather ? all : bytes, true);
}

std::string text_of(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  return error == nullptr ? e.what() : error->what_without_backtrace();
}

}  // namespace

std::string Group::claim(const std::string& what) {
  const std::lock_guard lock(mutex_);
  const auto me = std::this_thread::get_id();
  if (!failure_.empty()) return failure_;
  if (!joined_) return "a call of " + what + " before state() said that all ranks have come";
  if (finalizing_) return "a call of " + what + " after finalize";
  if (caller_ && *caller_ != me) return "two threads call at once: " + what + " while another thread calls " + call_;
  if (pending_) return "a call of " + what + " before state() said that " + call_ + " is under way";
  if (!caller_) call_ = what;
  caller_ = me;
  return {};
}

void Group::drop() {
  const std::lock_guard lock(mutex_);
  caller_.reset();
}

void Group::post(std::vector<Posted> operations) {
  const std::lock_guard lock(mutex_);
  pending_ = Pending{std::move(operations)};
}

Group::Result Group::state() {
  std::vector<Posted> operations;
  {
    const std::lock_guard lock(mutex_);
    if (!joined_ && failure_.empty()) return state_of_start();
    if (!failure_.empty()) return Result::failed;
    if (pending_) {
      // Too early at the first call, so that a caller that does not ask again finds nothing in the stream.
      if (caller_ != std::this_thread::get_id() || pending_->asked++ == 0) return Result::in_progress;
      operations = std::move(pending_->operations);
      pending_.reset();
      caller_.reset();
    }
    if (operations.empty() && !finalizing_) return Result::ok;
  }
  if (operations.empty()) return state_of_end();
  launch(std::move(operations));
  return Result::ok;
}

Group::Result Group::state_of_start() {
  if (shared_.all_joined()) {
    joined_ = true;
    Shared::close_id(id_);
    return Result::ok;
  }
  for (int r = 0; r < size(); ++r) {
    if (!shared_.died(r) && shared_.seat(r).left == Left::no) continue;
    fail_locked(c10::str("rank ", r, " left before all ranks of the group had come"));
    return Result::failed;
  }
  return Result::in_progress;
}

Group::Result Group::state_of_end() {
  if (last_ && !last_->query()) return Result::in_progress;  // true: from now on the host knows that they have run
  const std::lock_guard lock(mutex_);
  shared_.seat(rank()).finalizing = 1;
  if (shared_.all_finalize()) return Result::ok;
  for (int r = 0; r < size(); ++r) {
    if (shared_.seat(r).finalizing != 0 || (shared_.seat(r).left == Left::no && !shared_.died(r))) continue;
    fail_locked(c10::str("finalize waits for rank ", r, ", which has left the group without it"));
    return Result::failed;
  }
  return Result::in_progress;
}

std::string Group::finalize() {
  if (std::string why = claim("finalize"); !why.empty()) return why;
  const std::lock_guard lock(mutex_);
  finalizing_ = true;
  caller_.reset();
  return {};
}

void Group::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    pending_.reset();
    Seat& seat = shared_.seat(rank());
    failure_.copy(seat.why.data(), seat.why.size() - 1);
    seat.left = Left::aborted;
  }
  try {
    const auto end = Steady::now() + kAbortLimit;
    while (last_ && !last_->query() && Steady::now() < end) std::this_thread::sleep_for(100us);
  } catch (const c10::Error&) {
    // It is over, and its error was reported already.
  }
}

void Group::fail_locked(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  failed_at_ = Steady::now();
}

std::string Group::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_.empty() ? refusal_ : failure_;
}

void Group::note(const std::string& refusal) {
  const std::lock_guard lock(mutex_);
  refusal_ = refusal;
}

// Operations on several streams run once all these streams have reached them, and all these streams wait until they have run. A
// group's launches run in call order, whatever their streams.
void Group::launch(std::vector<Posted> posted) {
  const c10::Stream main = posted.front().stream;
  if (stream_ && *stream_ != main) order(*stream_, main);
  stream_ = main;
  std::vector<Operation> operations;
  std::vector<Access> accesses;
  std::vector<c10::Stream> others;
  bool stalls = false;
  bool error_follows = false;
  for (const Posted& p : posted) {
    operations.push_back(p.operation);
    add_accesses(*this, p.operation, accesses);
    stalls = stalls || p.stalls;
    error_follows = error_follows || p.error_follows;
    if (p.stream != main && std::find(others.begin(), others.end(), p.stream) == others.end()) others.push_back(p.stream);
  }
  const auto launch = std::make_shared<Launch>(std::move(operations));
  launch->stalls = stalls;
  if (error_follows) launch->fails_afterwards = c10::str("told to fail after ", launch->text());
  {
    const Lock machine = lock_machine();
    launch->captured = capture_of(stream_index(main)) != nullptr;
  }
  for (const c10::Stream& other : others) order(other, main);
  enqueue_blocking(main, c10::str(launch->text(), " of rank ", rank(), " of ", size()), std::move(accesses),
                   [self = shared_from_this(), launch] { return self->run(*launch); });
  for (const c10::Stream& other : others) order(main, other);
  if (launch->captured) return;
  last_.emplace(c10::DeviceType::PrivateUse1);
  last_->record(main);
}

Progress Group::run(Launch& launch) {
  const std::lock_guard lock(mutex_);
  const auto end = [&] {
    if (running_ == &launch) running_ = nullptr;
    launch.reset();
    return Progress::done;
  };
  if (aborted_) return end();
  if (failure_.empty()) {
    try {
      if (work(launch)) return end();
    } catch (const std::exception& e) {
      shared_.tell_failure(text_of(e));
      fail_locked(text_of(e));
    }
  }
  if (failure_.empty() || Steady::now() - failed_at_ < kGrace) return Progress::not_yet;
  end();
  TORCH_CHECK(false, "sim: ", failure_, "; and nobody has aborted the group");
}

bool Group::work(Launch& launch) {
  bool moved = false;
  bool done = false;
  if (!launch.stalls && (running_ == nullptr || running_ == &launch)) {
    if (!launch.begun()) {
      launch.begin(shared_);
      moved = true;
    }
    running_ = &launch;
    done = launch.advance(shared_, moved);
  }
  if (done && !launch.fails_afterwards.empty()) fail_locked(launch.fails_afterwards);
  if (moved) {
    moved_at_ = Steady::now();
  } else if (Steady::now() - looked_at_ > kBetweenLooks) {
    looked_at_ = Steady::now();
    check_for_deadlock(launch);
  }
  return done;
}

// Only if nothing moves, so that everything that can still end does end.
void Group::check_for_deadlock(const Launch& launch) {
  if (const std::string told = shared_.failure(); !told.empty()) return fail_locked(told);
  if (const std::string left = departure(launch); !left.empty()) return fail_locked(waiting(launch) + left);
  if (!launch.begun()) return;
  if (const std::vector<int> ring = shared_.ring_of_waits(); !ring.empty()) {
    std::string text = "ranks wait for each other without end: ";
    for (const int r : ring) text += c10::str("rank ", r, " in ", describe(shared_.seat(r).last), " for ");
    text +=
        c10::str("rank ", rank(), ": put messages that need each other between one group_start and group_end, and call all else ",
                 "in the same order on all ranks");
    shared_.tell_failure(text);
    return fail_locked(text);
  }
  if (const auto limit = wait_limit(); limit > 0ms && Steady::now() - moved_at_ > limit) {
    std::string late;
    for (const int r : launch.peers(shared_)) {
      if (!shared_.waits(rank(), r)) continue;
      const Seat& seat = shared_.seat(r);
      late += c10::str(late.empty() ? "rank " : ", rank ", r, " (", seat.begun / 2, " launches begun",
                       seat.begun < 2 ? std::string() : ", the last with " + describe(seat.last), ")");
    }
    fail_locked(c10::str(waiting(launch), late.empty() ? "its peers" : late, " for more than ", limit.count(), " ms"));
  }
}

std::string Group::departure(const Launch& launch) const {
  for (const int r : launch.peers(shared_)) {
    if (shared_.died(r)) return c10::str("rank ", r, ", whose process has ended");
    const Seat& seat = shared_.seat(r);
    const Left left = seat.left;
    if (left == Left::aborted)
      return c10::str("rank ", r, ", which has aborted the group", seat.why[0] == '\0' ? "" : ": ", seat.why.data());
    if (left == Left::destroyed && (!launch.begun() || shared_.waits(rank(), r)))
      return c10::str("rank ", r, ", which has destroyed the group");
  }
  return {};
}

std::string Group::waiting(const Launch& launch) const {
  return c10::str(launch.text(), " of rank ", rank(), " of ", size(), launch.stalls ? ", told to stall," : "", " waits for ");
}

}  // namespace qft::sim::collectives
