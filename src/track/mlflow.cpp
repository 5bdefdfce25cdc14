// MLflow: writes a run to a tracking server through its REST API.
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"
#include "qft/net/url.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <map>
#include <set>
#include <utility>

#include "mlflow_api.h"
#include "trackers.h"

namespace qft::track {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Limits of a log-batch request, and of its texts.
constexpr std::size_t kMetricsAtOnce = 1000, kParamsAtOnce = 100, kTagsAtOnce = 100, kLongestParam = 6000, kLongestTag = 5000;
/// Tag that marks a run as ours.
constexpr const char* kRunTag = "qft.run";
/// Our own error code for a run that was deleted but is still listed by the server.
constexpr const char* kDeleted = "DELETED";
/// Files of output_dir to upload when the run ends; weights only if HF_MLFLOW_LOG_ARTIFACTS is true.
constexpr const char* kResults[] = {"run.json",          "trainer_log.jsonl", "trainer_state.json",    "all_results.json",
                                    "training_loss.svg", "report.html",       "training_eval_loss.svg"};
constexpr const char* kWeights[] = {"adapter_config.json", "adapter_model.safetensors"};
constexpr std::uint64_t kMostArtifactBytes = std::uint64_t{2} << 30;

bool is_true(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word == "true" || word == "1" || word == "yes" || word == "on";
}

/// Replaces characters that MLflow forbids in keys; letters, digits and _ - . space : / are allowed.
std::string key_of(std::string name) {
  std::ranges::replace_if(
      name,
      [](unsigned char c) {
        return std::isalnum(c) == 0 && std::string_view("_-. :/").find(static_cast<char>(c)) == std::string_view::npos;
      },
      '_');
  return name;
}

/// JSON has no NaN, so this uses the names of protobuf's JSON format.
json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::int64_t milliseconds(double seconds) {
  return static_cast<std::int64_t>(seconds * 1e3);
}

std::string shortened(std::string text, std::size_t most) {
  if (text.size() > most) text = text.substr(0, most - 3) + "...";
  return text;
}

class Mlflow : public Tracker {
 public:
  Mlflow(const Run& run, std::shared_ptr<Deadline> deadline) : run_(run), api_(std::move(deadline)) {}
  std::string_view name() const override { return "mlflow"; }
  std::string address() const override { return fmt::format("{}/#/experiments/{}/runs/{}", api_.address(), experiment_, id_); }

  void open() override {
    if (id_.empty()) find_or_make();
    if (!noted_) note();
    try {
      log_settings();
    } catch (const MlflowError& e) {
      if (e.code != "INVALID_PARAMETER_VALUE") throw;
      log::warn("mlflow: the server rejected the settings; metrics are still sent: {}", e.what());
    }
  }

  void log(std::span<const Metric> metrics) override {
    std::vector<Metric> list;
    for (Metric m : metrics) {
      m.name = key_of(m.name);
      if (last_.is_new(m) && refused_.count(m.name) == 0) list.push_back(std::move(m));
    }
    for (std::size_t begin = 0; begin < list.size(); begin += kMetricsAtOnce)
      log_metrics(std::span(list).subspan(begin, std::min(kMetricsAtOnce, list.size() - begin)));
  }

  void finish(Status status) override {
    if (!ended_) {  // before the artifacts, which a server may refuse
      const char* word = status == Status::finished ? "FINISHED" : status == Status::stopped ? "KILLED" : "FAILED";
      api_.post("runs/update", {{"run_id", id_}, {"status", word}, {"end_time", milliseconds(unix_seconds())}});
      ended_ = true;
    }
    if (root_.starts_with("mlflow-artifacts:")) {
      for (const char* file : kResults) keep(file, file);
      if (is_true(variable("HF_MLFLOW_LOG_ARTIFACTS")))
        for (const char* file : kWeights) keep(file, std::string("model/") + file);
      if (unanswered_) std::rethrow_exception(std::exchange(unanswered_, nullptr));
    } else {
      log::info("mlflow: results are not stored as artifacts: the server keeps them in {} (start it with --serve-artifacts)",
                net::without_secrets(root_));
    }
  }

 private:
  /// Takes the run of MLFLOW_RUN_ID, or the run that this output_dir began, or makes a new one.
  void find_or_make() {
    const std::string asked = variable("MLFLOW_RUN_ID");
    if (!asked.empty()) {
      take(asked);
    } else if (const std::string known = known_run(); !known.empty()) {
      try {
        take(known);
      } catch (const MlflowError& e) {
        if (e.code != "RESOURCE_DOES_NOT_EXIST" && e.code != kDeleted) throw;
        log::warn("mlflow: run {}, which this run began, was deleted: making a new one", known);
        make();
      }
    } else {
      make();
    }
  }

  /// Writes the note by which a resumed run finds this MLflow run.
  void note() {
    const json note{{"run_id", id_}, {"server", api_.address()}, {"run", run_.id}};
    io::atomic_write_file(io::posix_storage(), run_.output_dir / kMlflowFile, note.dump(2) + "\n");
    noted_ = true;
  }

  /// Returns the MLflow run named by the note in output_dir; empty if there is none, or it belongs to another run.
  std::string known_run() const {
    const fs::path file = run_.output_dir / kMlflowFile;
    if (!fs::exists(file)) return {};
    try {
      const json note = io::read_json(file);
      if (note.at("server") == api_.address() && note.at("run") == run_.id) return note.at("run_id").get<std::string>();
    } catch (const std::exception&) {  // truncated or edited: treated as absent
    }
    return {};
  }

  std::string experiment() {
    if (std::string id = variable("MLFLOW_EXPERIMENT_ID"); !id.empty()) return id;
    const std::string asked = variable("MLFLOW_EXPERIMENT_NAME"), name = asked.empty() ? "Default" : asked;
    const std::string query = "experiment_name=" + net::percent_encoded(name);
    const auto existing = [&] {
      const json found = api_.get("experiments/get-by-name", query).at("experiment");
      if (found.value("lifecycle_stage", "active") != "active")
        fail("experiment '{}' was deleted: restore it, or set MLFLOW_EXPERIMENT_NAME to another name", name);
      return found.at("experiment_id").get<std::string>();
    };
    try {
      return existing();
    } catch (const MlflowError& e) {
      if (e.code != "RESOURCE_DOES_NOT_EXIST") throw;
    }
    try {
      return api_.post("experiments/create", {{"name", name}}).at("experiment_id").get<std::string>();
    } catch (const MlflowError& e) {
      if (e.code != "RESOURCE_ALREADY_EXISTS") throw;
      return existing();  // another run made it first
    }
  }

  void make() {
    const std::string name = run_.name.empty() ? fs::absolute(run_.output_dir).lexically_normal().filename().string() : run_.name;
    const json run = api_.post("runs/create", {{"experiment_id", experiment()},
                                               {"run_name", name},
                                               {"start_time", milliseconds(unix_seconds())},
                                               {"tags", {{{"key", kRunTag}, {"value", run_.id}}}}});
    enter(run.at("run"));
  }

  void take(const std::string& id) {
    const json run = api_.get("runs/get", "run_id=" + net::percent_encoded(id)).at("run");
    if (run.at("info").value("lifecycle_stage", "active") != "active")
      throw MlflowError(kDeleted, fmt::format("run {} was deleted: restore it, or unset MLFLOW_RUN_ID", id));
    const json data = run.value("data", json::object());
    for (const json& p : data.value("params", json::array())) params_[p.at("key")] = p.at("value");
    bool ours = false;
    for (const json& tag : data.value("tags", json::array()))
      ours = ours || (tag.at("key") == kRunTag && tag.at("value") == run_.id);
    if (ours)
      for (const json& m : data.value("metrics", json::array())) last_.add(m.at("key"), step_of(m));
    json update{{"run_id", id}, {"status", "RUNNING"}};
    if (!run_.name.empty()) update["run_name"] = run_.name;
    api_.post("runs/update", update);
    enter(run);
  }

  /// Some servers write 64-bit numbers as texts.
  static std::int64_t step_of(const json& metric) {
    const json step = metric.value("step", json(0));
    return step.is_string() ? std::atoll(step.get_ref<const std::string&>().c_str()) : step.get<std::int64_t>();
  }

  void enter(const json& run) {
    const json& info = run.at("info");
    id_ = info.at("run_id").get<std::string>();
    experiment_ = info.at("experiment_id").get<std::string>();
    root_ = info.value("artifact_uri", "");
  }

  /// MLflow's parameters never change, so changed settings of a resumed run go into tags.
  void log_settings() {
    std::vector<json> params, tags;
    const auto tag = [&](const std::string& key, const std::string& value) {
      tags.push_back({{"key", key_of(key)}, {"value", shortened(value, kLongestTag)}});
    };
    for (const auto& [key, value] : run_.settings.items()) {
      if (value.is_null() || value == "" || value == json::array()) continue;
      const std::string text = shortened(value.is_string() ? value.get<std::string>() : value.dump(), kLongestParam);
      const auto before = params_.find(key);
      if (before == params_.end())
        params.push_back({{"key", key_of(key)}, {"value", text}});
      else if (before->second != text)
        tag(fmt::format("changed.{}", key), text);
    }
    tag(kRunTag, run_.id);
    tag("mlflow.source.name", "qft train");
    tag("mlflow.source.type", "JOB");
    if (const std::string user = variable("USER"); !user.empty()) tag("mlflow.user", user);
    for (const auto& [key, value] : run_.tags) tag(key, value);
    const json own = json::parse(variable("MLFLOW_TAGS"), nullptr, /*allow_exceptions=*/false);
    if (own.is_object())
      for (const auto& [key, value] : own.items()) tag(key, value.is_string() ? value.get<std::string>() : value.dump());
    log_batches("params", params, kParamsAtOnce);
    log_batches("tags", tags, kTagsAtOnce);
  }

  void log_batches(const char* what, const std::vector<json>& list, std::size_t at_once) {
    for (std::size_t begin = 0; begin < list.size(); begin += at_once)
      api_.post(
          "runs/log-batch",
          {{"run_id", id_},
           {what, json(std::vector<json>(list.begin() + static_cast<std::ptrdiff_t>(begin),
                                         list.begin() + static_cast<std::ptrdiff_t>(std::min(list.size(), begin + at_once))))}});
  }

  /// If the server rejects the batch, halves it down to the rejected metric, which is skipped from then on; the others arrive.
  void log_metrics(std::span<const Metric> metrics) {
    std::vector<json> list;
    for (const Metric& m : metrics)
      if (refused_.count(m.name) == 0)
        list.push_back({{"key", m.name}, {"value", number(m.value)}, {"timestamp", milliseconds(m.time)}, {"step", m.step}});
    try {
      log_batches("metrics", list, kMetricsAtOnce);
      for (const Metric& m : metrics) last_.add(m.name, m.step);
    } catch (const MlflowError& e) {
      if (e.code != "INVALID_PARAMETER_VALUE") throw;
      if (const std::size_t half = metrics.size() / 2; half > 0) {
        log_metrics(metrics.first(half));
        log_metrics(metrics.subspan(half));
      } else {
        refused_.insert(metrics.front().name);
        log::warn("mlflow: the server rejected the metric '{}'; the others are still sent: {}", metrics.front().name, e.what());
      }
    }
  }

  /// Uploads a file of output_dir once. A file that the server refuses is skipped; without an answer it is retried later.
  void keep(const char* file, const std::string& as) {
    if (kept_.count(as) > 0) return;
    try {
      put(run_.output_dir / file, as);
    } catch (const net::NetworkError&) {
      unanswered_ = std::current_exception();
      return;
    } catch (const Error& e) {
      log::warn("mlflow: '{}' was not stored as an artifact: {}", as, e.what());
    }
    kept_.insert(as);
  }

  void put(const fs::path& file, const std::string& as) {
    std::error_code code;
    if (!fs::is_regular_file(file, code)) return;
    const std::uint64_t bytes = fs::file_size(file);
    if (bytes > kMostArtifactBytes) {
      log::warn("mlflow: '{}' with {} bytes is too large to send: use `mlflow artifacts log-artifact`", file.string(), bytes);
      return;
    }
    const io::File in = io::File::open_read(file);
    std::string content(in.size(), '\0');
    in.pread(0, content.data(), content.size());
    api_.put_artifact(root_, as, std::move(content));
  }

  Run run_;
  MlflowApi api_;
  std::string id_, experiment_, root_;  ///< of the server's run; root_ is the place of its artifacts
  std::map<std::string, std::string> params_;
  LastSteps last_;
  std::set<std::string, std::less<>> refused_;  ///< metrics
  std::set<std::string, std::less<>> kept_;     ///< artifacts that are stored, or that the server refused
  std::exception_ptr unanswered_;               ///< of the last artifact without an answer
  bool noted_ = false, ended_ = false;          ///< the note is written; the server knows how the run ended
};

}  // namespace

std::unique_ptr<Tracker> make_mlflow(const Run& run, std::shared_ptr<Deadline> deadline) {
  return std::make_unique<Mlflow>(run, std::move(deadline));
}

}  // namespace qft::track
