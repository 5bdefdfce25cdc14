#include "qft/comm/work.h"

#include "qft/core/activity.h"

#include <exception>
#include <utility>

namespace qft::comm {

Work::Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

Work::~Work() {
  if (!state_) return;
  if (std::uncaught_exceptions() > 0) {
    state_->abandon();
    return;
  }
  try {
    state_->wait();
  } catch (...) {
    // wait() is where a failure is reported; a destructor cannot.
  }
}

Work& Work::operator=(Work&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

void Work::wait() {
  if (!state_) return;
  const activity::Waiting waiting;
  state_->wait();
  state_.reset();
}

void Work::wait_host() {
  if (!state_) return;
  const activity::Waiting waiting;
  state_->wait_host();
  state_.reset();
}

bool Work::test() {
  if (!state_) return true;
  if (!state_->test()) return false;
  state_.reset();
  return true;
}

}  // namespace qft::comm
