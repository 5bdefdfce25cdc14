#include "qft/net/http.h"

#include "qft/core/version.h"
#include "qft/net/url.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <unistd.h>
#include <utility>

#include "library.h"

#define CURL_DISABLE_TYPECHECK
#define CURL_DISABLE_DEPRECATION  // the successors are missing in RHEL 8's libcurl 7.61
#include <curl/curl.h>
#undef curl_easy_setopt
#undef curl_easy_getinfo

namespace qft::net {
namespace {

constexpr std::size_t kMaxBody = std::size_t{64} << 20;
constexpr int kMaxRedirects = 10;
constexpr long kLeastSpeed = 1000;  // bytes per second

/// The functions used from libcurl.
struct Curl {
  decltype(curl_global_init)* global_init;
  decltype(curl_easy_init)* make;
  decltype(curl_easy_cleanup)* free;
  decltype(curl_easy_reset)* reset;
  decltype(curl_easy_setopt)* set;
  decltype(curl_easy_perform)* perform;
  decltype(curl_easy_getinfo)* get;
  decltype(curl_easy_strerror)* words;
  decltype(curl_slist_append)* append;
  decltype(curl_slist_free_all)* free_list;

  Curl() {
    const Library library({"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"},
                          "hubs and trackers need libcurl (Debian: libcurl4)");
    library.find("curl_global_init", global_init);
    library.find("curl_easy_init", make);
    library.find("curl_easy_cleanup", free);
    library.find("curl_easy_reset", reset);
    library.find("curl_easy_setopt", set);
    library.find("curl_easy_perform", perform);
    library.find("curl_easy_getinfo", get);
    library.find("curl_easy_strerror", words);
    library.find("curl_slist_append", append);
    library.find("curl_slist_free_all", free_list);
    global_init(CURL_GLOBAL_DEFAULT);
  }
};

const Curl& curl() {
  static const Curl loaded;
  return loaded;
}

/// Returns the certificate file: from the environment, else the system's usual place; empty: libcurl's own choice.
std::string certificates() {
  for (const char* name : {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"})
    if (const char* file = std::getenv(name); file != nullptr && *file != '\0') return file;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"})
    if (access(file, R_OK) == 0) return file;
  return {};
}

/// A list of headers in libcurl's form.
class HeaderList {
 public:
  HeaderList() = default;
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  ~HeaderList() { curl().free_list(list_); }
  void add(const std::string& line) { list_ = curl().append(list_, line.c_str()); }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

int status_of(CURL* handle) {
  long status = 0;
  curl().get(handle, CURLINFO_RESPONSE_CODE, &status);
  return static_cast<int>(status);
}

bool is_success(int status) {
  return status >= 200 && status < 300;
}

/// A running transfer, for libcurl's callbacks.
struct Transfer {
  CURL* handle;
  const Request& request;
  Response& response;
  bool ended_here = false;         ///< by sink or keep_going
  bool wrong_range = false;        ///< the answer starts at another byte than requested
  std::exception_ptr thrown = {};  ///< by sink or keep_going: exceptions must not pass through C

  template <class F>
  bool ask(F&& f) {
    try {
      if (f()) return true;
    } catch (...) {
      thrown = std::current_exception();
    }
    ended_here = true;
    return false;
  }

  std::size_t take(std::string_view bytes) {
    const int status = status_of(handle);
    if (is_success(status) && request.first_byte > 0 && !starts_at(request.first_byte)) {
      wrong_range = true;
      return 0;
    }
    if (request.sink && is_success(status)) return ask([&] { return request.sink(bytes); }) ? bytes.size() : 0;
    if (response.body.size() + bytes.size() > kMaxBody) return 0;
    response.body += bytes;
    return bytes.size();
  }

  /// True if the header reads like "Content-Range: bytes 100-199/200" with this first byte.
  bool starts_at(std::int64_t byte) const { return response.header("content-range").starts_with(fmt::format("bytes {}-", byte)); }

  void take_header(std::string_view line) {
    if (line.starts_with("HTTP/")) response.headers.clear(), response.body.clear();
    const std::size_t colon = line.find(':');
    if (colon == line.npos) return;
    Header h{std::string(line.substr(0, colon)), {}};
    std::ranges::transform(h.name, h.name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    line.remove_prefix(colon + 1);
    const std::size_t begin = line.find_first_not_of(" \t"), end = line.find_last_not_of(" \t\r\n");
    if (begin != line.npos) h.value = line.substr(begin, end - begin + 1);
    response.headers.push_back(std::move(h));
  }
};

std::size_t on_body(char* data, std::size_t, std::size_t bytes, void* transfer) {
  return static_cast<Transfer*>(transfer)->take({data, bytes});
}

std::size_t on_header(char* data, std::size_t, std::size_t bytes, void* transfer) {
  static_cast<Transfer*>(transfer)->take_header({data, bytes});
  return bytes;
}

int on_progress(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& t = *static_cast<Transfer*>(transfer);
  return !t.request.keep_going || t.ask(t.request.keep_going) ? 0 : 1;
}

}  // namespace

std::string_view Response::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &Header::name);
  return found == headers.end() ? std::string_view() : std::string_view(found->value);
}

/// Blocks SIGPIPE in this thread during its lifetime, so that writing to a closed connection is an ordinary error and does not
/// end the process: libcurl's TLS libraries write to sockets in ways that raise SIGPIPE.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec now{};
    if (!was_pending_)
      while (sigtimedwait(&pipe_, nullptr, &now) == -1 && errno == EINTR) {
      }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

struct Client::Handle {
  CURL* handle = curl().make();
  Handle() { require(handle != nullptr, "libcurl gives no handle: out of memory"); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    const NoPipeSignal quiet;  // closing writes to servers that may be gone
    curl().free(handle);
  }

  template <class T>
  void set(CURLoption option, T value) const {
    const CURLcode code = curl().set(handle, option, value);
    QFT_ASSERT(code == CURLE_OK, "libcurl rejected option {}: {}", static_cast<int>(option), curl().words(code));
  }

  void set_request(const Request& r) const {
    set(CURLOPT_URL, r.url.c_str());
    set(CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    if (r.method == "HEAD") set(CURLOPT_NOBODY, 1L);
    if (r.method != "GET" && r.method != "HEAD") {
      set(CURLOPT_CUSTOMREQUEST, r.method.c_str());
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(r.body.size()));
      set(CURLOPT_POSTFIELDS, r.body.data());
    }
    if (r.first_byte > 0) set(CURLOPT_RANGE, fmt::format("{}-", r.first_byte).c_str());
  }

  void set_transport(const Request& r) const {
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(r.connect_timeout.count()));
    set(CURLOPT_LOW_SPEED_LIMIT, kLeastSpeed);
    set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(r.stall_timeout.count() / 1000)));
    // libcurl ignores HTTP_PROXY, because a web server may set it from a request.
    const char *proxy = std::getenv("HTTP_PROXY"), *lower = std::getenv("http_proxy");
    if (proxy != nullptr && lower == nullptr && std::getenv("REQUEST_METHOD") == nullptr && r.url.starts_with("http://"))
      set(CURLOPT_PROXY, proxy);
    const std::string file = certificates();
    if (!file.empty()) set(CURLOPT_CAINFO, file.c_str());
  }

  void set_token(const Request& r) const {
    if (r.token.empty()) return;
    set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    set(CURLOPT_XOAUTH2_BEARER, r.token.c_str());
  }
};

Client::Client() : handle_(std::make_unique<Handle>()) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

namespace {

/// Returns libcurl's error text. If the proxy has a password, returns a text without it, because libcurl's own may contain it.
std::string words_of(CURLcode code, const char* words, const Request& request) {
  const bool https = request.url.starts_with("https:");
  for (const char* name : {https ? "https_proxy" : "http_proxy", https ? "HTTPS_PROXY" : "HTTP_PROXY", "all_proxy", "ALL_PROXY"})
    if (const char* proxy = std::getenv(name); proxy != nullptr && std::string_view(proxy).find('@') != std::string_view::npos) {
      const std::string_view host = std::string_view(proxy).substr(std::string_view(proxy).rfind('@') + 1);
      return fmt::format(
          "{} ({} names the proxy {}; in user and password write all characters except letters and digits as %XX: '#' as %23)",
          curl().words(code), name, host);
    }
  return words[0] != '\0' ? words : curl().words(code);
}

}  // namespace

Response Client::send_once(const Request& request) {
  Response response;
  const Handle& h = *handle_;
  Transfer transfer{.handle = h.handle, .request = request, .response = response};
  curl().reset(h.handle);
  h.set_request(request);
  h.set_transport(request);
  h.set_token(request);
  HeaderList headers;
  headers.add("User-Agent: qft/" + std::string(version()));
  headers.add("Expect:");
  for (const Header& header : request.headers) headers.add(header.name + ": " + header.value);
  h.set(CURLOPT_HTTPHEADER, headers.get());
  h.set(CURLOPT_WRITEFUNCTION, &on_body);
  h.set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  h.set(CURLOPT_HEADERFUNCTION, &on_header);
  h.set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  h.set(CURLOPT_NOPROGRESS, 0L);
  h.set(CURLOPT_XFERINFOFUNCTION, &on_progress);
  h.set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  std::array<char, CURL_ERROR_SIZE> words{};
  h.set(CURLOPT_ERRORBUFFER, words.data());
  const CURLcode code = [&] {
    const NoPipeSignal quiet;
    return curl().perform(h.handle);
  }();
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  if (transfer.wrong_range)
    throw NoRangeError(fmt::format("{}: the server did not send the file from byte {}, but answered {} {}",
                                   without_secrets(request.url), request.first_byte, status_of(h.handle),
                                   response.header("content-range")));
  if (transfer.ended_here) throw NetworkError(fmt::format("{}: the transfer was stopped by qft", without_secrets(request.url)));
  if (code != CURLE_OK)
    throw NetworkError(
        fmt::format("{} {}: {}", request.method, without_secrets(request.url), words_of(code, words.data(), request)));
  response.status = status_of(h.handle);
  response.url = request.url;
  return response;
}

Response Client::send(const Request& request) {
  Request hop = request;
  for (int hops = 0; hops <= kMaxRedirects; ++hops) {
    Response response = send_once(hop);
    if (!request.follow_redirects) return response;
    const char* next = nullptr;
    curl().get(handle_->handle, CURLINFO_REDIRECT_URL, &next);  // absolute, also if the header is relative
    if (response.status < 300 || response.status > 399 || next == nullptr) return response;
    if (site_of(next) != site_of(hop.url)) {
      hop.token.clear();
      std::erase_if(hop.headers, [](const Header& h) { return h.secret; });
    }
    hop.url = next;
    const bool same_method = response.status == 307 || response.status == 308 || hop.method == "HEAD";
    if (!same_method) hop.method = "GET", hop.body.clear();
  }
  throw NetworkError(fmt::format("{}: redirected more than {} times", without_secrets(request.url), kMaxRedirects));
}

}  // namespace qft::net
