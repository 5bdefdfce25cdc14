// The current phase and step of a run, in watch::kProgressFile. `qft watch` reads the file between log lines. Rank 0 only.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

namespace qft::train {

/// A separate thread checks once a second and writes changes, without fsync: training never waits for it.
class ProgressFile {
 public:
  explicit ProgressFile(std::filesystem::path output_dir);
  /// Removes the file: run.json says how the run ended.
  ~ProgressFile();
  ProgressFile(const ProgressFile&) = delete;
  ProgressFile& operator=(const ProgressFile&) = delete;

  /// Training starts after `step`.
  void begin(std::int64_t step, std::int64_t total_steps);
  /// `step` is done.
  void step(std::int64_t step);

 private:
  void poll();
  void write(const nlohmann::json& state);

  std::filesystem::path path_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<std::int64_t> step_;
  std::int64_t from_step_ = 0, total_steps_ = 0;
  double from_time_ = 0;
  bool ends_ = false, warned_ = false;
  std::thread thread_;
};

}  // namespace qft::train
