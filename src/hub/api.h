// A hub's API: lists a repository's files at a revision, and requests each file.
#pragma once

#include "qft/hub/source.h"
#include "qft/net/http.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "patience.h"
#include <nlohmann/json.hpp>

namespace qft::hub {

/// A file as its hub describes it.
struct RemoteFile {
  enum class Check : std::uint8_t { size, git_blob, sha256 };  ///< how to verify its bytes
  std::string path;                                            ///< in the repository: "config.json", "data/train.jsonl"
  std::uint64_t bytes = 0;
  Check check = Check::size;
  std::string digest;  ///< lower-case hex; empty with Check::size
};

/// 40 hex digits.
bool is_commit(const std::string& text);

struct Listing {
  std::string commit;             ///< empty if the hub does not report one
  std::vector<RemoteFile> files;  ///< paths are plain and stay inside the repository
};

class Api {
 public:
  Api(Source source, Settings settings, RetryPolicy trying);
  virtual ~Api() = default;
  /// Throws net::NetworkError if the hub does not answer (immediately if it never did), Error with its refusal and the reason.
  virtual Listing list(net::Client& client) const = 0;
  /// Returns the request for the whole file.
  virtual net::Request file(const Listing& listing, const RemoteFile& file) const = 0;
  /// Throws Error that explains why the hub refused the repository or one of its files.
  [[noreturn]] void refuse(net::Client& client, const net::Response& response) const;

  const Source& source() const { return source_; }
  const Settings& settings() const { return settings_; }

 protected:
  net::Request request(const std::string& path) const;
  /// Returns the answer as JSON; throws refuse() for an error status. Retries if the server is busy, or answered before and is
  /// gone.
  nlohmann::json ask(net::Client& client, const net::Request& request, net::Response* response = nullptr) const;
  /// Adds the file after checking that its path stays inside the repository.
  void add(Listing& listing, RemoteFile file) const;
  virtual std::vector<std::string> revisions(net::Client& client) const = 0;
  /// True if the repository itself is visible although its revision is not.
  virtual bool is_there(net::Client& client) const = 0;

  /// Returns the hub's own error text.
  std::string words_of(const net::Response& response) const;
  [[noreturn]] void refuse_token() const;

 private:
  net::Response send(net::Client& client, net::Request request) const;
  Source source_;
  Settings settings_;
  RetryPolicy retry_;
  mutable bool answered_ = false;
};

std::unique_ptr<Api> huggingface_api(Source source, Settings settings, RetryPolicy trying);
std::unique_ptr<Api> modelscope_api(Source source, Settings settings, RetryPolicy trying);

}  // namespace qft::hub
