#include "relay.h"

#include "qft/core/activity.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace qft::inputs {
namespace {

constexpr std::uint64_t kBlock = std::uint64_t{4} << 20;
constexpr std::uint64_t kSlots = 8;
constexpr std::uint64_t kMaxLag = kSlots / 2;  // blocks that may still be sent or written while later ones arrive

/// Writes blocks in order on a separate thread.
class Writer {
 public:
  explicit Writer(const Write& write) : write_(write) {
    if (write_) thread_ = std::jthread([this] { run(); });
  }
  ~Writer() { finish(); }

  void put(std::span<const std::byte> block) {
    const std::scoped_lock lock(mutex_);
    queue_[put_++ % kSlots] = block;
    wake_.notify_all();
  }
  /// Waits until `blocks` blocks are written.
  void wait_for(std::uint64_t blocks) {
    if (!write_) return;
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return written_ >= blocks; });
  }
  void finish() {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
      wake_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return written_ < put_ || ends_; });
      if (written_ == put_) return;
      const auto block = queue_[written_ % kSlots];
      lock.unlock();
      write_(block);
      lock.lock();
      ++written_;
      wake_.notify_all();
    }
  }

  const Write& write_;
  std::array<std::span<const std::byte>, kSlots> queue_;
  std::uint64_t put_ = 0, written_ = 0;
  bool ends_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::jthread thread_;
};

}  // namespace

bool relay(comm::Communicator& chain, std::uint64_t total, const Read& read, const Write& write) {
  const int me = chain.rank();
  const bool first = me == 0, last = me + 1 == chain.size();
  std::uint64_t blocks = (total + kBlock - 1) / kBlock;
  std::vector<std::vector<std::byte>> slots(kSlots);
  for (auto& slot : slots) slot.resize(std::min(kBlock, total) + 1);
  const auto block = [&](std::uint64_t b) { return std::span(slots[b % kSlots]).first(std::min(kBlock, total - b * kBlock)); };
  // A byte after the block tells whether the stream continues. After its end, the blocks with a posted receive still arrive.
  const auto message = [&](std::uint64_t b) { return std::span(slots[b % kSlots]).first(block(b).size() + 1); };
  bool whole = true;
  std::array<comm::Work, kSlots> coming, going;
  const auto post_recv = [&](std::uint64_t b) {
    coming[b % kSlots] = chain.start_recv(message(b).data(), message(b).size(), DType::u8, me - 1);
  };
  Writer writer(write);
  if (!first)
    for (std::uint64_t b = 0; b < std::min(kSlots, blocks); ++b) post_recv(b);
  for (std::uint64_t b = 0; b < blocks; ++b) {
    if (first) {
      going[b % kSlots].wait();
      writer.wait_for(b < kSlots ? 0 : b - kSlots + 1);
      message(b).back() = static_cast<std::byte>(whole && read(block(b)));
    } else {
      coming[b % kSlots].wait();
    }
    if (whole && message(b).back() == std::byte{0}) whole = false, blocks = std::min(blocks, b + kSlots);
    if (!last) going[b % kSlots] = chain.start_send(message(b).data(), message(b).size(), DType::u8, me + 1);
    if (write) writer.put(block(b));
    activity::tick();
    if (first || b < kMaxLag || b - kMaxLag + kSlots >= blocks) continue;
    const std::uint64_t old = b - kMaxLag;
    going[old % kSlots].wait();
    writer.wait_for(old + 1);
    post_recv(old + kSlots);
  }
  for (comm::Work& work : going) work.wait();
  writer.finish();
  return whole;
}

}  // namespace qft::inputs
