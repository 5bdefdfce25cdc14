// TensorBoard: writes event files with transformers' tags.
#include "qft/core/error.h"

#include <algorithm>
#include <optional>

#include "event_file.h"
#include "trackers.h"

namespace qft::track {
namespace {

namespace fs = std::filesystem;

/// "eval_loss" becomes eval/loss, "loss" becomes train/loss; names in qft's groups stay.
std::string tag_of(const std::string& name) {
  for (const std::string_view group : {"system/", "seconds/"})
    if (name.starts_with(group)) return name;
  return name.starts_with("eval_") ? "eval/" + name.substr(5) : "train/" + name;
}

/// Makes a folder name from a run's name.
std::string folder_name(std::string name) {
  std::ranges::replace_if(name, [](unsigned char c) { return c < ' ' || c == '/' || c == '\\'; }, '_');
  return name == "." || name == ".." ? "_" : name;
}

class TensorBoard : public Tracker {
 public:
  explicit TensorBoard(const Run& run) : run_(run), dir_(run.logging_dir) {
    if (dir_.empty()) dir_ = run.output_dir / kRunsFolder / folder_name(run.name.empty() ? run.id.substr(0, 12) : run.name);
  }
  std::string_view name() const override { return "tensorboard"; }
  std::string address() const override { return fmt::format("'{}'", dir_.string()); }

  void open() override {
    last_ = read_last_steps(dir_);
    last_.cut(run_.from_step);
    const double now = unix_seconds();
    file_.emplace(dir_);
    if (run_.from_step < kKeepAllSteps) file_->start(run_.from_step + 1, now);
    // As transformers does: the settings, on the text page.
    file_->text("args/text_summary", run_.settings.dump(2, ' ', false, nlohmann::json::error_handler_t::replace), 0, now);
    file_->flush();
  }

  void log(std::span<const Metric> metrics) override {
    if (!file_) file_.emplace(dir_);  // the previous file could not be written completely
    try {
      write(metrics);
      file_->flush();
    } catch (...) {
      file_.reset();
      throw;
    }
  }

  void finish(Status) override {}

 private:
  /// Writes the metrics of one log line as one event.
  void write(std::span<const Metric> metrics) {
    for (std::size_t i = 0; i < metrics.size();) {
      const std::int64_t step = metrics[i].step;
      const double time = metrics[i].time;
      std::vector<Scalar> values;
      for (; i < metrics.size() && metrics[i].step == step && metrics[i].time == time; ++i) {
        const std::string tag = tag_of(metrics[i].name);
        if (last_.is_new({tag, 0, step, 0})) values.push_back({tag, static_cast<float>(metrics[i].value)});
      }
      if (!values.empty()) file_->scalars(values, step, time);
    }
  }

  Run run_;
  fs::path dir_;
  LastSteps last_;
  std::optional<EventFile> file_;
};

}  // namespace

std::unique_ptr<Tracker> make_tensorboard(const Run& run, std::shared_ptr<Deadline>) {
  return std::make_unique<TensorBoard>(run);
}

}  // namespace qft::track
