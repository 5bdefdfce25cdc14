#include "progress_file.h"

#include "qft/core/activity.h"
#include "qft/core/clock.h"
#include "qft/core/log.h"
#include "qft/core/thread.h"
#include "qft/io/storage.h"
#include "qft/watch/run_view.h"

#include <chrono>
#include <fstream>
#include <utility>

namespace qft::train {

namespace fs = std::filesystem;
using nlohmann::json;

ProgressFile::ProgressFile(fs::path output_dir) : path_(std::move(output_dir) / watch::kProgressFile) {
  thread_ = start_thread([this] { poll(); });
}

ProgressFile::~ProgressFile() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
  std::error_code ignored;
  fs::remove(path_, ignored);
}

void ProgressFile::begin(std::int64_t step, std::int64_t total_steps) {
  const std::lock_guard lock(mutex_);
  step_ = from_step_ = step;
  total_steps_ = total_steps;
  from_time_ = unix_seconds();
}

void ProgressFile::step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void ProgressFile::poll() {
  json written;
  std::unique_lock lock(mutex_);
  while (!ends_) {
    json state{{"phase", activity::state().phase}};
    if (step_)
      state.update({{"step", *step_}, {"total_steps", total_steps_}, {"from_step", from_step_}, {"from_time", from_time_}});
    if (state != written) {
      written = state;
      state["time"] = unix_seconds();
      lock.unlock();
      write(state);
      lock.lock();
    }
    wake_.wait_for(lock, std::chrono::seconds(1), [this] { return ends_; });
  }
}

/// Only warns: a full disk must not end the run because of this file.
void ProgressFile::write(const json& state) {
  const fs::path temporary = path_.parent_path() / (std::string(io::kTempPrefix) + path_.filename().string());
  std::error_code code;
  bool good = false;
  {
    std::ofstream out(temporary, std::ios::trunc);
    out << state.dump() << '\n' << std::flush;
    good = out.good();
  }
  if (good) fs::rename(temporary, path_, code);
  if ((!good || code) && !std::exchange(warned_, true))
    log::warn("cannot write '{}': qft watch shows logged steps only", path_.string());
}

}  // namespace qft::train
