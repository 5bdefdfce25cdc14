#include "qft/comm/work.h"

#include "qft/core/activity.h"
#include "qft/core/clock.h"

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
    complete();
  } catch (...) {
    // wait() reports failures; a destructor cannot.
  }
}

Work& Work::operator=(Work&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(span_, other.span_);
  return *this;
}

void Work::wait() {
  if (!state_) return;
  const activity::Waiting waiting;
  state_->wait();
  complete();
}

void Work::wait_host() {
  if (!state_) return;
  const activity::Waiting waiting;
  state_->wait_host();
  complete();
}

bool Work::test() {
  if (!state_) return true;
  if (!state_->test()) return false;
  complete();
  return true;
}

void Work::record(trace::Span span) {
  span_ = std::make_unique<trace::Span>(std::move(span));
  if (!state_) complete();
}

void Work::complete() {
  if (span_) {
    const double known = state_ ? state_->completed_at() : 0.0;
    span_->end = known > 0.0 ? known : steady_seconds();
    trace::add(std::move(*span_));
    span_.reset();
  }
  state_.reset();
}

}  // namespace qft::comm
