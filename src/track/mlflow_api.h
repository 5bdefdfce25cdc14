// The part of MLflow's REST API 2.0 that a run needs (https://mlflow.org/docs/latest/rest-api.html). Private to track.
#pragma once

#include "qft/net/http.h"
#include "qft/track/tracker.h"

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

namespace qft::track {

/// An error that the server answered, such as "RESOURCE_DOES_NOT_EXIST".
class MlflowError : public Error {
 public:
  MlflowError(std::string code, const std::string& message) : Error(message), code(std::move(code)) {}
  std::string code;
};

/// Returns an environment variable's value; empty if it is not set.
std::string variable(const char* name);

class MlflowApi {
 public:
  /// Uses the server of MLFLOW_TRACKING_URI. Authenticates with MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD,
  /// or user and password in the address.
  explicit MlflowApi(std::shared_ptr<Deadline> deadline);

  /// Returns the server's address without secrets.
  const std::string& address() const { return shown_; }

  /// Throws NetworkError if there is no answer, MlflowError if the answer is an error.
  nlohmann::json get(const std::string& method, const std::string& query);
  nlohmann::json post(const std::string& method, const nlohmann::json& body);
  /// Stores a text or bytes as artifact `path` in the server's own store; `root` is "mlflow-artifacts:/...".
  void put_artifact(const std::string& root, const std::string& path, std::string content);

 private:
  nlohmann::json send(net::Request request);

  std::shared_ptr<Deadline> deadline_;
  std::string base_, shown_, token_, basic_;
  std::unique_ptr<net::Client> client_;
};

}  // namespace qft::track
