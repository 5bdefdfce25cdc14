#include "ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "reduce_kernels.h"

namespace qft::comm {

namespace {

// Short enough that over TCP the next messages' handshakes, which queue behind data in the same direction, cause no waiting. With
// shorter segments the fixed cost per message shows on shared memory.
constexpr std::size_t kSegmentBytes = std::size_t{512} << 10;
// Segments in flight: some transfer, some are summed, some do their handshake. On a network of 400 Mbit/s, 2 segments of 4 MiB
// gave 28 MB/s each way, 16 of 512 KiB 46 MB/s.
constexpr std::size_t kWindow = 16;
// The same for all gathers of a communicator together: a reduction launched after nine of them waits for 8 MiB at most.
constexpr std::size_t kGatherWindow = 16;

// Buffers for partial sums: the arriving one and the departing one. Reused from channel to channel, to keep their pages.
struct Scratch {
  explicit Scratch(std::size_t bytes)
      : incoming(std::make_unique_for_overwrite<char[]>(bytes)), outgoing(std::make_unique_for_overwrite<char[]>(bytes)) {}
  std::unique_ptr<char[]> incoming;
  std::unique_ptr<char[]> outgoing;
};

// One segment of every slice on its way around the ring.
class Channel {
 public:
  Channel(const RingPlan& plan, std::vector<Slice> slices, int tag, std::unique_ptr<Scratch> scratch)
      : plan_(plan),
        slices_(std::move(slices)),
        tag_(tag),
        width_(size_of(plan.dtype)),
        wide_(size_of(accumulation_type(plan.dtype))),
        scratch_(std::move(scratch)) {}

  std::unique_ptr<Scratch> take_scratch() { return std::move(scratch_); }

  void start() {
    if (plan_.reduces) {
      post_reduce_step();
    } else {
      begin_gather();
    }
  }

  // Requests of the current step.
  std::vector<MPI_Request>& requests() { return requests_; }
  bool step_is_over() const {
    return std::all_of(requests_.begin(), requests_.end(), [](MPI_Request r) { return r == MPI_REQUEST_NULL; });
  }

  // Goes from a finished step to the next. Returns false at the end: this channel's part of the result is complete on this rank.
  bool next_step() {
    requests_.clear();
    if (reducing_) {
      finish_reduce_step();
      return reducing_ || plan_.gathers;
    }
    if (++step_ >= plan_.size - 1) return false;
    post_gather_step();
    return true;
  }

 private:
  const Slice& slice(int index) const {
    return slices_[static_cast<std::size_t>((index % plan_.size + plan_.size) % plan_.size)];
  }
  const char* own(const Slice& s) const { return static_cast<const char*>(plan_.send) + s.source * width_; }
  char* result(const Slice& s) const { return static_cast<char*>(plan_.recv) + s.target * width_; }
  int right() const { return (plan_.rank + 1) % plan_.size; }
  int left() const { return (plan_.rank + plan_.size - 1) % plan_.size; }

  // Step k: sends the partial sum of slice rank-1-k to the right and receives slice rank-2-k from the left.
  void post_reduce_step() {
    reducing_ = true;
    const auto& out = slice(plan_.rank - 1 - step_);
    const auto& in = slice(plan_.rank - 2 - step_);
    const void* data = scratch_->outgoing.get();
    if (step_ == 0) {
      if (wide_ == width_) {
        data = own(out);
      } else {
        widen(scratch_->outgoing.get(), own(out), out.count, plan_.dtype);
      }
    }
    post_recv(scratch_->incoming.get(), in.count * wide_, left(), tag_, plan_.comm, requests_);
    post_send(data, out.count * wide_, right(), tag_, plan_.comm, requests_);
  }

  void finish_reduce_step() {
    const auto& in = slice(plan_.rank - 2 - step_);
    combine(scratch_->incoming.get(), own(in), in.count, plan_.dtype, plan_.op);
    std::swap(scratch_->incoming, scratch_->outgoing);
    if (++step_ < plan_.size - 1) {
      post_reduce_step();
      return;
    }
    const auto& mine = slice(plan_.rank);
    narrow(result(mine), scratch_->outgoing.get(), mine.count, plan_.dtype);
    reducing_ = false;
    if (plan_.gathers) {
      step_ = 0;
      post_gather_step();
    }
  }

  void begin_gather() {
    const auto& mine = slice(plan_.rank);
    if (mine.count > 0 && result(mine) != own(mine)) std::memcpy(result(mine), own(mine), mine.count * width_);
    post_gather_step();
  }

  // Step k: sends slice rank-k to the right and receives slice rank-1-k from the left.
  void post_gather_step() {
    const auto& out = slice(plan_.rank - step_);
    const auto& in = slice(plan_.rank - 1 - step_);
    post_recv(result(in), in.count * width_, left(), tag_, plan_.comm, requests_);
    post_send(result(out), out.count * width_, right(), tag_, plan_.comm, requests_);
  }

  const RingPlan& plan_;
  std::vector<Slice> slices_;
  int tag_;
  std::size_t width_;
  std::size_t wide_;
  int step_ = 0;
  bool reducing_ = false;
  std::vector<MPI_Request> requests_;
  std::unique_ptr<Scratch> scratch_;  ///< only if the plan reduces
};

class RingWork final : public MpiWork {
 public:
  /// `turns`: null unless the plan waits for its turn.
  RingWork(RingPlan plan, int first_tag, int tags, std::shared_ptr<GatherTurns> turns)
      : plan_(std::move(plan)), segments_(ring_segments(plan_)), first_tag_(first_tag), tags_(tags), turns_(std::move(turns)) {}

  ~RingWork() override {
    if (!turns_) return;
    turns_->leave(this);
    turns_->give_back(counted_);
  }
  RingWork(const RingWork&) = delete;
  RingWork& operator=(const RingWork&) = delete;

 private:
  void prioritize() noexcept override { urgent_.store(true, std::memory_order_relaxed); }

  bool advance() override {
    try {
      return move();
    } catch (...) {
      if (turns_) turns_->fail(this, std::current_exception());
      throw;
    }
  }

  bool move() {
    while (true) {
      open_channels();
      if (channels_.empty()) return next_ == segments_;
      poll();
      bool moved = false;
      const std::size_t closed = std::erase_if(channels_, [&](const std::unique_ptr<Channel>& channel) {
        if (!channel->step_is_over()) return false;
        moved = true;
        if (channel->next_step()) return false;
        if (plan_.reduces) spare_.push_back(channel->take_scratch());
        return true;
      });
      give_back(closed);
      if (!moved) return false;
    }
  }

  void open_channels() {
    if (next_ == segments_) return;
    while (next_ < segments_ && may_open()) open_channel();
    if (turns_ && next_ == segments_) turns_->leave(this);
  }

  bool may_open() {
    if (!turns_ || urgent_.load(std::memory_order_relaxed)) return channels_.size() < kWindow;
    if (!turns_->take(this)) return false;
    ++counted_;
    return true;
  }

  void give_back(std::size_t closed) {
    const std::size_t counted = std::min(closed, counted_);
    if (counted > 0) turns_->give_back(counted);
    counted_ -= counted;
  }

  // Tests all channels' requests in one call, because each call makes MPI poll its connections.
  void poll() {
    polled_.clear();
    for (const auto& channel : channels_) polled_.insert(polled_.end(), channel->requests().begin(), channel->requests().end());
    if (polled_.empty()) return;
    test_some(polled_, indices_, "ring step");
    auto next = polled_.begin();
    for (const auto& channel : channels_)
      for (auto& request : channel->requests()) request = *next++;
  }

  std::unique_ptr<Scratch> take_scratch() {
    if (!plan_.reduces) return nullptr;
    if (spare_.empty()) {
      std::size_t longest = 0;
      for (const auto& slice : plan_.slices) longest = std::max(longest, slice.count);
      const auto elements = std::min(longest, ring_segment(plan_.dtype));
      return std::make_unique<Scratch>(elements * size_of(accumulation_type(plan_.dtype)));
    }
    auto scratch = std::move(spare_.back());
    spare_.pop_back();
    return scratch;
  }

  void open_channel() {
    const auto length = ring_segment(plan_.dtype);
    auto slices = plan_.slices;
    for (auto& slice : slices) {
      const auto skip = std::min(slice.count, next_ * length);
      slice.source += skip;
      slice.target += skip;
      slice.count = std::min(slice.count - skip, length);
    }
    const auto tag = static_cast<int>((static_cast<std::size_t>(first_tag_) + next_) % static_cast<std::size_t>(tags_));
    channels_.push_back(std::make_unique<Channel>(plan_, std::move(slices), tag, take_scratch()));
    channels_.back()->start();
    ++next_;
  }

  RingPlan plan_;
  std::size_t segments_;
  int first_tag_;
  int tags_;
  std::shared_ptr<GatherTurns> turns_;
  std::size_t counted_ = 0;  ///< open segments that count in `turns_`
  std::atomic<bool> urgent_{false};
  std::size_t next_ = 0;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<std::unique_ptr<Scratch>> spare_;
  std::vector<MPI_Request> polled_;
  std::vector<int> indices_;
};

}  // namespace

std::size_t ring_segment(DType dtype) {
  return kSegmentBytes / size_of(dtype);
}

std::size_t ring_segments(const RingPlan& plan) {
  std::size_t longest = 0;
  for (const auto& slice : plan.slices) longest = std::max(longest, slice.count);
  const auto length = ring_segment(plan.dtype);
  return (longest + length - 1) / length;
}

void GatherTurns::join(const MpiWork* work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(work);
}

bool GatherTurns::take(const MpiWork* work) {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (open_ >= kGatherWindow || queue_.empty() || queue_.front() != work) return false;
  ++open_;
  return true;
}

void GatherTurns::give_back(std::size_t segments) {
  const std::lock_guard lock(mutex_);
  open_ -= segments;
}

void GatherTurns::leave(const MpiWork* work) {
  const std::lock_guard lock(mutex_);
  std::erase(queue_, work);
}

void GatherTurns::fail(const MpiWork* work, std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  std::erase(queue_, work);
  if (!failure_) failure_ = std::move(failure);
}

std::shared_ptr<MpiWork> make_ring(RingPlan plan, int first_tag, int tags, const std::shared_ptr<GatherTurns>& turns) {
  const bool queues = turns && !plan.reduces && ring_segments(plan) > 0;
  auto work = std::make_shared<RingWork>(std::move(plan), first_tag, tags, queues ? turns : nullptr);
  if (queues) turns->join(work.get());
  return work;
}

}  // namespace qft::comm
