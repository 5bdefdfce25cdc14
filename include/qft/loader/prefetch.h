// A producer on a separate thread, a few results ahead of its consumer.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace qft::loader {

/// Calls `produce` until it returns nothing or throws; at most `depth` results are ready at a time.
template <class T>
class Prefetcher {
 public:
  Prefetcher(std::function<std::optional<T>()> produce, std::size_t depth)
      : produce_(std::move(produce)), depth_(depth == 0 ? 1 : depth), thread_([this](std::stop_token stop) { run(stop); }) {}

  /// Returns the next result; nothing once the producer has ended. Rethrows the producer's exception at its place in the
  /// sequence.
  std::optional<T> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty() || ended_; });
    if (ready_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    std::optional<T> value(std::move(ready_.front()));
    ready_.pop_front();
    changed_.notify_all();
    return value;
  }

 private:
  void run(const std::stop_token& stop) {
    std::exception_ptr error;
    try {
      while (!stop.stop_requested()) {
        std::optional<T> value = produce_();
        if (!value) break;
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [this] { return ready_.size() < depth_; })) break;
        ready_.push_back(std::move(*value));
        changed_.notify_all();
      }
    } catch (...) {
      error = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    error_ = error;
    ended_ = true;
    changed_.notify_all();
  }

  std::function<std::optional<T>()> produce_;
  std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<T> ready_;
  bool ended_ = false;
  std::exception_ptr error_;
  std::jthread thread_;  // last member: it stops and joins before the others are destroyed
};

}  // namespace qft::loader
