#include "api.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/net/url.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

namespace qft::hub {
namespace {

constexpr std::chrono::milliseconds kConnect{8'000};  // a node without a network is told so at once
constexpr int kTries = 4;
constexpr std::size_t kMostWords = 300;

bool is_busy(int status) {
  return status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// "config.json", "data/a b.jsonl"; nothing that leads elsewhere.
bool stays_inside(const std::string& path) {
  const std::filesystem::path p = path;
  if (path.empty() || path.size() > 1024 || p.is_absolute() || path.ends_with('/')) return false;
  if (std::ranges::any_of(path, [](unsigned char c) { return c < ' ' || c == 0x7f || c == '\\'; })) return false;
  return std::ranges::none_of(p, [](const auto& part) { return part == ".." || part == "." || part.string().size() > 255; });
}

}  // namespace

bool is_commit(const std::string& text) {
  return text.size() == 40 && is_hex(text);
}

Api::Api(Source source, Settings settings) : source_(std::move(source)), settings_(std::move(settings)) {
  check(source_);
}

net::Request Api::request(const std::string& path) const {
  net::Request r;
  r.url = net::join(settings_.endpoint, path);
  r.token = settings_.token;
  r.connect_timeout = kConnect;
  return r;
}

nlohmann::json Api::ask(net::Client& client, const net::Request& request, net::Response* response) const {
  net::Response answer = client.send(request);
  for (int i = 1; i < kTries && is_busy(answer.status); ++i) {
    std::this_thread::sleep_for(std::chrono::seconds(1 << (i - 1)));
    answer = client.send(request);
  }
  if (!answer.ok()) refuse(client, answer);
  nlohmann::json json;
  try {
    json = parse_json(answer.body, net::without_secrets(answer.url));
  } catch (const Error& e) {
    fail("{}: what answers there is no {} hub: expected JSON ({}); set its address ({})", net::without_secrets(request.url),
         name_of(source_.hub), e.what(), source_.hub == Hub::huggingface ? "HF_ENDPOINT" : "MODELSCOPE_ENDPOINT");
  }
  if (response != nullptr) *response = std::move(answer);
  return json;
}

void Api::add(Listing& listing, RemoteFile file) const {
  require(stays_inside(file.path), "{}: the hub lists the file '{}', which is no path inside the repository: nothing is written",
          source_.id, as_utf8(file.path));
  const std::size_t digits = file.check == RemoteFile::Check::sha256 ? 64 : file.check == RemoteFile::Check::git_blob ? 40 : 0;
  require(file.digest.size() == digits && is_hex(file.digest),
          "{}: the hub states '{}' as the hash of {}: expected {} hex digits", source_.id, as_utf8(file.digest), file.path,
          digits);
  listing.files.push_back(std::move(file));
}

std::string Api::words_of(const net::Response& response) const {
  std::string words(response.header("x-error-message"));
  if (words.empty() && response.body.starts_with('{')) {
    try {
      const auto json = parse_json(response.body, "the answer");
      for (const char* key : {"Message", "message", "error"})
        if (words.empty() && json.contains(key) && json[key].is_string()) words = json[key].template get<std::string>();
    } catch (const Error&) {  // its status says enough
    }
  }
  std::ranges::replace_if(words, [](unsigned char c) { return c < ' '; }, ' ');
  return redacted(as_utf8(words.substr(0, kMostWords)), settings_.token);
}

void Api::refuse_token() const {
  fail("{} refuses the token of {}: make a new one on {}, or unset it for what is public", net::host_of(settings_.endpoint),
       settings_.token_from, net::without_secrets(settings_.endpoint));
}

void Api::refuse(net::Client& client, const net::Response& response) const {
  const std::string words = words_of(response), host = net::host_of(settings_.endpoint);
  const std::string_view code = response.header("x-error-code"), kind = name_of(source_.kind);
  const std::string said = words.empty() ? "" : fmt::format(" (it says: {})", words);
  const bool hf = source_.hub == Hub::huggingface;
  const std::string_view key = hf ? "HF_TOKEN" : "MODELSCOPE_API_TOKEN";
  const int status = response.status;
  const bool denied = status == 401 || status == 403;
  if (code == "GatedRepo" || (hf && status == 403))
    fail("{} {} is gated on {}{}: accept its conditions at {} with your account, and {}", kind, source_.id, host, said,
         net::without_secrets(net::join(settings_.endpoint, source_.id)),
         settings_.token.empty()
             ? fmt::format("set {}", key)
             : fmt::format("see that the token of {} is that account's and may read it", settings_.token_from));
  if (code == "EntryNotFound") fail("{} {} on {}: the hub lists a file that it does not have{}", kind, source_.id, host, said);
  if (status == 401 && !settings_.token.empty() && code != "RepoNotFound") refuse_token();
  if (code == "RevisionNotFound" || (status == 404 && code != "RepoNotFound" && is_there(client))) {
    const auto names = revisions(client);
    fail("{} {} on {} has no revision '{}'{}", kind, source_.id, host, revision_of(source_),
         names.empty() ? said : fmt::format("; it has {}", fmt::join(names, ", ")));
  }
  if (denied || status == 404)
    fail(
        "there is no {} {} on {}, or it is private and {}{}. Is the name right? Another hub is named by {}, another kind by "
        "--dataset",
        kind, source_.id, host,
        settings_.token.empty() ? fmt::format("no token is given ({})", key)
                                : fmt::format("the token of {} may not see it", settings_.token_from),
        said, hf ? "hub: modelscope" : "hub: huggingface");
  fail("{} answers {} to {}{}", host, status, net::without_secrets(response.url), said);
}

}  // namespace qft::hub
