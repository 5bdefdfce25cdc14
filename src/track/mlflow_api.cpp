#include "mlflow_api.h"

#include "qft/core/error.h"
#include "qft/net/url.h"

#include <cstdlib>
#include <string_view>

#include "trackers.h"

namespace qft::track {
namespace {

using nlohmann::json;

constexpr std::string_view kArtifacts = "mlflow-artifacts:";

std::string base64(std::string_view text) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | (i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) out += i + k <= text.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

/// Returns "user:password" of an address; empty if it has none.
std::string userinfo_of(std::string_view url) {
  const std::size_t begin = url.find("://") + 3, end = std::min(url.find_first_of("/?#", begin), url.size());
  const std::size_t at = url.substr(0, end).rfind('@');
  return at == url.npos || at < begin ? "" : std::string(url.substr(begin, at - begin));
}

bool is_web(std::string_view uri) {
  return uri.starts_with("http://") || uri.starts_with("https://");
}

}  // namespace

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void require_mlflow_server() {
  const std::string uri = variable("MLFLOW_TRACKING_URI");
  if (is_web(uri)) return;
  constexpr std::string_view kStart =
      "start one with `mlflow server --host 127.0.0.1 --port 5000` (add --backend-store-uri to show an existing "
      "store), and set MLFLOW_TRACKING_URI=http://127.0.0.1:5000";
  if (uri.empty()) fail_config("report_to: mlflow writes to a server, but MLFLOW_TRACKING_URI is not set: {}", kStart);
  if (uri.starts_with("databricks"))
    fail_config("report_to: mlflow: MLFLOW_TRACKING_URI is '{}': set the workspace's https address and MLFLOW_TRACKING_TOKEN",
                net::without_secrets(uri));
  fail_config("report_to: mlflow writes to a server, but MLFLOW_TRACKING_URI is '{}', a local store: {}",
              net::without_secrets(uri), kStart);
}

MlflowApi::MlflowApi(std::shared_ptr<Deadline> deadline) : deadline_(std::move(deadline)) {
  const std::string uri = variable("MLFLOW_TRACKING_URI");
  shown_ = base_ = net::without_secrets(uri);
  token_ = variable("MLFLOW_TRACKING_TOKEN");
  if (!token_.empty()) return;
  const std::string user = variable("MLFLOW_TRACKING_USERNAME"), password = variable("MLFLOW_TRACKING_PASSWORD");
  if (!user.empty())
    basic_ = base64(user + ":" + password);
  else if (const std::string own = userinfo_of(uri); !own.empty())
    basic_ = base64(own);
}

json MlflowApi::get(const std::string& method, const std::string& query) {
  net::Request request;
  request.url = net::join(base_, "api/2.0/mlflow/" + method) + "?" + query;
  return send(std::move(request));
}

json MlflowApi::post(const std::string& method, const json& body) {
  net::Request request;
  request.method = "POST";
  request.url = net::join(base_, "api/2.0/mlflow/" + method);
  request.headers.push_back({"Content-Type", "application/json"});
  request.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  return send(std::move(request));
}

void MlflowApi::put_artifact(const std::string& root, const std::string& path, std::string content) {
  std::string_view place = std::string_view(root).substr(kArtifacts.size());
  // mlflow-artifacts://host:port/path names the server's host; requests to the server need only the path.
  if (place.starts_with("//")) place = place.substr(std::min(place.find('/', 2), place.size()));
  net::Request request;
  request.method = "PUT";
  request.url = net::join(net::join(base_, "api/2.0/mlflow-artifacts/artifacts"), std::string(place)) + "/" +
                net::percent_encoded(path, "/");
  request.headers.push_back({"Content-Type", "application/octet-stream"});
  request.body = std::move(content);
  send(std::move(request));
}

json MlflowApi::send(net::Request request) {
  if (!client_) client_ = std::make_unique<net::Client>();
  request.token = token_;
  if (!basic_.empty()) request.headers.push_back({"Authorization", "Basic " + basic_});
  request.follow_redirects = false;  // following would turn a POST into a GET
  request.keep_going = [this] { return !deadline_->passed(); };
  const net::Response response = client_->send(request);
  const json body = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  const bool object = body.is_object();
  if (response.ok()) return object ? body : json::object();
  const std::string where = net::without_secrets(request.url);
  if (response.status >= 300 && response.status < 400)
    fail("{} answers {}: the server moved to {}: set MLFLOW_TRACKING_URI to that address", where, response.status,
         net::without_secrets(response.header("location")));
  if (response.status == 401 || response.status == 403)
    fail("{} answers {}: check MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD", where,
         response.status);
  const std::string message = object ? body.value("message", "") : response.body.substr(0, 200);
  throw MlflowError(object ? body.value("error_code", "") : "",
                    fmt::format("{} answers {}: {}", where, response.status, message));
}

}  // namespace qft::track
