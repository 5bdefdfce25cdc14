#include "qft/track/metrics.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sys/stat.h>

namespace qft::track {
namespace {

using nlohmann::json;

/// A key of the log and its metric. Lines of evaluations repeat the training keys, so those are skipped there.
struct Key {
  std::string_view key, name;
  bool of_training = true;
};
constexpr Key kKeys[] = {{"loss", "loss"},
                         {"eval_loss", "eval_loss", false},
                         {"grad_norm", "grad_norm"},
                         {"lr", "learning_rate"},
                         {"epoch", "epoch", false},
                         {"throughput", "tokens_per_second"},
                         {"total_tokens", "num_input_tokens_seen"},
                         {"skipped_updates", "skipped_updates"}};

bool is_number(const json& value) {
  return value.is_number() || (value.is_string() && !value.get_ref<const std::string&>().empty());
}

/// JSON holds NaN and infinities as texts.
double number(const json& value) {
  return value.is_string() ? std::strtod(value.get_ref<const std::string&>().c_str(), nullptr) : value.get<double>();
}

/// "host_memory": [1, 2] becomes system/host_memory_0 and system/host_memory_1; a single value gets no number.
void add_system(const json& system, const std::function<void(std::string, double)>& add) {
  for (const auto& [key, values] : system.items()) {
    if (!values.is_array()) continue;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i].is_number())
        add(values.size() == 1 ? "system/" + key : fmt::format("system/{}_{}", key, i), values[i].get<double>());
  }
}

}  // namespace

bool names_metric(std::string_view key) {
  return key.find('/') != key.npos || (key.starts_with("eval_") && std::ranges::find(kKeys, key, &Key::key) == std::end(kKeys));
}

std::vector<Metric> metrics_of(const json& line, double time) {
  std::vector<Metric> metrics;
  if (!line.is_object()) return metrics;
  const json step = line.value("current_steps", json());
  if (!step.is_number_integer()) return metrics;
  const json own_time = line.value("time", json());
  const double at = own_time.is_number() ? own_time.get<double>() : time;
  const auto add = [&](std::string name, double value) {
    metrics.push_back({std::move(name), value, step.get<std::int64_t>(), at});
  };
  const bool of_training = line.contains("loss");
  for (const Key& k : kKeys)
    if (const auto it = line.find(k.key); it != line.end() && is_number(*it) && (of_training || !k.of_training))
      add(std::string(k.name), number(*it));
  for (const auto& [key, value] : line.items())
    if (names_metric(key) && is_number(value)) add(key, number(value));
  if (!of_training) return metrics;
  const json memory = line.value("memory", json());
  if (memory.is_array() && !memory.empty() && std::ranges::all_of(memory, [](const json& m) { return m.is_number(); }))
    add("memory_peak", std::ranges::max(memory).get<double>());
  const json phases = line.value("seconds", json::object()), system = line.value("system", json::object());
  for (const auto& [phase, seconds] : phases.items())
    if (seconds.is_number()) add("seconds/" + phase, seconds.get<double>());
  add_system(system, add);
  return metrics;
}

std::vector<json> LogFollower::next(std::size_t most) {
  std::vector<json> lines;
  struct stat info{};
  if (::stat(path_.c_str(), &info) != 0) return lines;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if ((inode_ != 0 && info.st_ino != inode_) || size < taken_) {
    taken_ = 0;
    restarted_ = true;
  }
  inode_ = info.st_ino;
  seen_ = taken_;
  if (size == taken_) return lines;
  std::ifstream in(path_);
  require(in.good(), "cannot read '{}'", path_.string());
  in.seekg(static_cast<std::streamoff>(taken_));
  for (std::string line; lines.size() < most && std::getline(in, line) && !in.eof();) {  // the last line may be incomplete
    seen_ += line.size() + 1;
    json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_discarded()) lines.push_back(std::move(parsed));
  }
  return lines;
}

bool LogFollower::restarted() {
  return std::exchange(restarted_, false);
}

void LastSteps::add(const std::string& name, std::int64_t step) {
  const auto [it, fresh] = last_.emplace(name, step);
  if (!fresh) it->second = std::max(it->second, step);
}

void LastSteps::cut(std::int64_t step) {
  for (auto& [name, last] : last_) last = std::min(last, step);
}

bool LastSteps::is_new(const Metric& metric) const {
  const auto it = last_.find(metric.name);
  return it == last_.end() || metric.step > it->second;
}

}  // namespace qft::track
