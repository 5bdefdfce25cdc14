#include "api.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/log.h"
#include "qft/net/url.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include <fmt/ranges.h>

namespace qft::hub {
namespace {

constexpr std::chrono::milliseconds kConnect{8'000};  // short, so that a node without a network fails fast
constexpr std::chrono::seconds kWholeAnswer{120};     // for a JSON answer
constexpr std::size_t kMostWords = 300;

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// True for plain paths such as "config.json" and "data/a b.jsonl"; false for paths that lead elsewhere.
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

Api::Api(Source source, Settings settings, RetryPolicy trying)
    : source_(std::move(source)), settings_(std::move(settings)), retry_(std::move(trying)) {
  check(source_);
}

net::Request Api::request(const std::string& path) const {
  net::Request r;
  r.url = net::join(settings_.endpoint, path);
  r.token = settings_.token;
  r.connect_timeout = kConnect;
  return r;
}

net::Response Api::send(net::Client& client, net::Request request) const {
  using Clock = std::chrono::steady_clock;
  bool said = false;
  RetryTimer patience(retry_, [&](const std::string& words) {
    if (!std::exchange(said, true)) log::info("{}", words);
  });
  for (;;) {
    const auto until = Clock::now() + kWholeAnswer;
    request.keep_going = [&] { return activity::tick(), retry_.may_continue() && Clock::now() < until; };
    std::string fault;
    std::chrono::seconds asked{};
    try {
      net::Response answer = client.send(request);
      answered_ = true;
      if (!is_busy(answer.status)) return answer;
      asked = asked_wait(answer, std::time(nullptr));
      fault = fmt::format("{} answers {} to {}{}", net::host_of(answer.url), answer.status, net::without_secrets(answer.url),
                          asked.count() > 0 ? fmt::format(" and asks to wait {} s", asked.count()) : "");
    } catch (const net::NetworkError& e) {
      if (!answered_ || !retry_.may_continue()) throw;  // a node without a network fails at once
      fault = e.what();
    }
    if (!patience.wait(fault, asked)) throw net::NetworkError(retry_.may_continue() ? fault : fault + ": ended on request");
  }
}

nlohmann::json Api::ask(net::Client& client, const net::Request& request, net::Response* response) const {
  net::Response answer = send(client, request);
  if (!answer.ok()) refuse(client, answer);
  require(!request.url.starts_with("https:") || answer.url.starts_with("https:"),
          "{} redirects to {}, which is not encrypted: its file list cannot be trusted", net::without_secrets(request.url),
          net::without_secrets(answer.url));
  nlohmann::json json;
  try {
    json = parse_json(answer.body, net::without_secrets(answer.url));
  } catch (const Error& e) {
    fail("{}: not a {} hub: expected JSON ({}); set the hub's address ({})", net::without_secrets(request.url),
         name_of(source_.hub), e.what(), source_.hub == Hub::huggingface ? "HF_ENDPOINT" : "MODELSCOPE_ENDPOINT");
  }
  if (response != nullptr) *response = std::move(answer);
  return json;
}

void Api::add(Listing& listing, RemoteFile file) const {
  require(stays_inside(file.path), "{}: the hub lists the file '{}', which is not a path in the repository: nothing was written",
          source_.id, replace_invalid_utf8(file.path));
  const std::size_t digits = file.check == RemoteFile::Check::sha256 ? 64 : file.check == RemoteFile::Check::git_blob ? 40 : 0;
  require(file.digest.size() == digits && is_hex(file.digest),
          "{}: the hub states '{}' as the hash of {}: expected {} hex digits", source_.id, replace_invalid_utf8(file.digest),
          file.path, digits);
  listing.files.push_back(std::move(file));
}

std::string Api::words_of(const net::Response& response) const {
  std::string words(response.header("x-error-message"));
  if (words.empty() && response.body.starts_with('{')) {
    try {
      const auto json = parse_json(response.body, "the answer");
      for (const char* key : {"Message", "message", "error"})
        if (words.empty() && json.contains(key) && json[key].is_string()) words = json[key].template get<std::string>();
    } catch (const Error&) {  // the status is enough
    }
  }
  std::ranges::replace_if(words, [](unsigned char c) { return c < ' '; }, ' ');
  return redacted(replace_invalid_utf8(words.substr(0, kMostWords)), settings_.token);
}

void Api::refuse_token() const {
  fail("{} refuses the token of {}: make a new one on {}, or unset it for public files", net::host_of(settings_.endpoint),
       settings_.token_from, net::without_secrets(settings_.endpoint));
}

void Api::refuse(net::Client& client, const net::Response& response) const {
  const std::string words = words_of(response), host = net::host_of(settings_.endpoint);
  const std::string_view code = response.header("x-error-code"), kind = name_of(source_.kind);
  const std::string said = words.empty() ? "" : fmt::format(" (its answer: {})", words);
  const bool hf = source_.hub == Hub::huggingface;
  const std::string_view key = hf ? "HF_TOKEN" : "MODELSCOPE_API_TOKEN";
  const int status = response.status;
  const bool denied = status == 401 || status == 403;
  if (code == "GatedRepo" || (hf && status == 403))
    fail("{} {} is gated on {}{}: accept its conditions at {} with your account, and {}", kind, source_.id, host, said,
         net::without_secrets(net::join(settings_.endpoint, (source_.kind == Kind::dataset ? "datasets/" : "") + source_.id)),
         settings_.token.empty()
             ? fmt::format("set {}", key)
             : fmt::format("check that the token of {} belongs to that account and may read it", settings_.token_from));
  if (code == "EntryNotFound") fail("{} {} on {}: the hub lists a file that it does not have{}", kind, source_.id, host, said);
  if (status == 401 && !settings_.token.empty() && code != "RepoNotFound") refuse_token();
  if (code == "RevisionNotFound" || (status == 404 && code != "RepoNotFound" && is_there(client))) {
    const auto names = revisions(client);
    fail("{} {} on {} has no revision '{}'{}", kind, source_.id, host, revision_of(source_),
         names.empty() ? said : fmt::format("; it has {}", fmt::join(names, ", ")));
  }
  if (denied || status == 404)
    fail(
        "there is no {} {} on {}, or it is private and {}{}. Check the name; for another hub set {}, for another kind use "
        "--dataset",
        kind, source_.id, host,
        settings_.token.empty() ? fmt::format("no token is given ({})", key)
                                : fmt::format("the token of {} may not see it", settings_.token_from),
        said, hf ? "hub: modelscope" : "hub: huggingface");
  fail("{} answers {} to {}{}", host, status, net::without_secrets(response.url), said);
}

}  // namespace qft::hub
