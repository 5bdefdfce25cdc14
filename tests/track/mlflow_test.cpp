// Tests with a server that refuses requests of the MLflow tracker.
#include "qft/io/file.h"
#include "qft/track/tracker.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "support/temp_files.h"
#include <fmt/format.h>

namespace qft::track {
namespace {

using nlohmann::json;

/// Answers one request per connection; `answer` gets "POST /path" and the body, and returns status and body.
class Server {
 public:
  using Answer = std::function<std::pair<int, json>(const std::string& what, const std::string& body)>;
  explicit Server(Answer answer) : answer_(std::move(answer)), fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (bind(fd_, raw, size) != 0 || listen(fd_, 8) != 0 || getsockname(fd_, raw, &size) != 0)
      throw std::runtime_error("no port");
    setenv("MLFLOW_TRACKING_URI", fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port)).c_str(), 1);
    thread_ = std::thread([this] {
      for (int guest = 0; (guest = accept(fd_, nullptr, nullptr)) >= 0; close(guest)) serve(guest);
    });
  }
  ~Server() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  void serve(int guest) const {
    std::string text;
    std::size_t head = text.npos, length = 0;
    for (char bytes[4096]; head == text.npos || text.size() < head + 4 + length;) {
      const ssize_t n = ::read(guest, bytes, sizeof(bytes));
      if (n <= 0) return;
      text.append(bytes, static_cast<std::size_t>(n));
      if (head = text.find("\r\n\r\n"); head == text.npos) continue;
      if (const std::size_t at = text.find("Content-Length: "); at < head) length = std::stoul(text.substr(at + 16));
    }
    const auto [status, body] = answer_(text.substr(0, text.find(" HTTP/")), text.substr(head + 4));
    const std::string said = body.dump();
    const auto reply =
        fmt::format("HTTP/1.1 {} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status, said.size(), said);
    if (::write(guest, reply.data(), reply.size()) < 0) return;
  }

  Answer answer_;
  int fd_;
  std::thread thread_;
};

const json kRefusal{{"error_code", "INVALID_PARAMETER_VALUE"}, {"message", "no"}};

/// State of a fake MLflow server: the test reads it once the tracker has its answers.
struct FakeServerState {
  std::vector<std::string> metrics, artifacts, statuses, deleted;
  int runs = 0;

  std::pair<int, json> operator()(const std::string& what, const std::string& body) {
    const json asked = json::parse(body, nullptr, false);
    const auto run = [](const std::string& id, const char* stage) -> json {
      return {
          {"run",
           {{"info",
             {{"run_id", id}, {"experiment_id", "0"}, {"artifact_uri", "mlflow-artifacts:/0/a"}, {"lifecycle_stage", stage}}}}}};
    };
    if (what.find("get-by-name") != what.npos) return {200, {{"experiment", {{"experiment_id", "0"}}}}};
    if (what.find("runs/create") != what.npos) return {200, run(fmt::format("r{}", ++runs), "active")};
    if (what.find("runs/get") != what.npos) return {200, run("r1", deleted.empty() ? "active" : "deleted")};
    if (what.find("runs/update") != what.npos)
      statuses.push_back(asked["run_id"].get<std::string>() + " " + asked["status"].get<std::string>());
    if (what.starts_with("PUT ")) {
      if (what.ends_with("trainer_log.jsonl")) return {413, json::array()};
      artifacts.push_back(what.substr(what.rfind('/') + 1));
    }
    if (!asked.is_object() || !asked.contains("metrics")) return {200, json::object()};
    for (const json& m : asked["metrics"])
      if (m["key"].get<std::string>().find("//") != std::string::npos) return {400, kRefusal};
    for (const json& m : asked["metrics"])
      metrics.push_back(fmt::format("{} {}", m["key"].get<std::string>(), m["step"].get<int>()));
    return {200, json::object()};
  }
};

class MlflowTest : public testing::Test {
 protected:
  MlflowTest() {
    run_.output_dir = folder_.path();
    run_.id = "mine";
    run_.settings = json::object();
    unsetenv("MLFLOW_RUN_ID");
  }
  std::unique_ptr<Tracker> tracker() const { return make_tracker("mlflow", run_, std::make_shared<Deadline>()); }

  TempFolder folder_;
  FakeServerState kept_;
  Server server_{[this](const std::string& what, const std::string& body) { return kept_(what, body); }};
  track::Run run_;
};

TEST_F(MlflowTest, AnArtifactThatIsRefusedHoldsUpNeitherTheStatusNorTheOthers) {
  for (const char* file : {"run.json", "trainer_log.jsonl", "all_results.json"})
    std::ofstream(folder_.path() + "/" + file) << "{}";
  const auto mlflow = tracker();
  mlflow->open();
  mlflow->finish(Status::finished);
  EXPECT_EQ(kept_.statuses, std::vector<std::string>{"r1 FINISHED"});
  EXPECT_EQ(kept_.artifacts, (std::vector<std::string>{"run.json", "all_results.json"}));
}

TEST_F(MlflowTest, AMetricThatIsRefusedIsLeftOutAlone) {
  const auto mlflow = tracker();
  mlflow->open();
  std::vector<Metric> metrics;
  for (int step = 1; step <= 3; ++step)
    for (const char* name : {"loss", "a//b", "lr"}) metrics.push_back({name, 1.0, step, 0});
  mlflow->log(metrics);
  std::sort(kept_.metrics.begin(), kept_.metrics.end());
  EXPECT_EQ(kept_.metrics, (std::vector<std::string>{"loss 1", "loss 2", "loss 3", "lr 1", "lr 2", "lr 3"}));
  mlflow->log(metrics);
  EXPECT_EQ(kept_.metrics.size(), 6U) << "none twice";
}

TEST_F(MlflowTest, ARunThatWasDeletedThereGetsANewOne) {
  tracker()->open();
  kept_.deleted = {"r1"};
  const auto again = tracker();
  again->open();
  again->finish(Status::stopped);
  EXPECT_EQ(kept_.statuses, std::vector<std::string>{"r2 KILLED"});
  EXPECT_EQ(io::read_json(folder_.path() + "/" + kMlflowFile).at("run_id"), "r2");
  setenv("MLFLOW_RUN_ID", "r1", 1);
  const auto named = tracker();
  EXPECT_THROW(named->open(), Error);
  EXPECT_THROW(named->open(), Error) << "the second attempt fails, too";
  unsetenv("MLFLOW_RUN_ID");
}

}  // namespace
}  // namespace qft::track
