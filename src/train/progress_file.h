// What a run is at, from its start on: watch::kProgressFile, which `qft watch` reads between log lines. Rank 0 only.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

namespace qft::train {

/// A thread of its own looks once a second and writes what has changed, without fsync: training never waits for it.
class ProgressFile {
 public:
  explicit ProgressFile(std::filesystem::path output_dir);
  /// Removes the file: run.json says how the run ended.
  ~ProgressFile();
  ProgressFile(const ProgressFile&) = delete;
  ProgressFile& operator=(const ProgressFile&) = delete;

  /// Training goes on behind `step`.
  void begin(std::int64_t step, std::int64_t total_steps);
  /// This step is done.
  void step(std::int64_t step);

 private:
  void look();
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
