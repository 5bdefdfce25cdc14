// The client with invalid proxies and closed connections.
#include "qft/net/http.h"

#include <arpa/inet.h>
#include <csignal>
#include <cstdlib>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace qft::net {
namespace {

/// A port that accepts connections and never answers.
class SilentServer {
 public:
  SilentServer() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (bind(fd_, raw, size) != 0 || listen(fd_, 1) != 0 || getsockname(fd_, raw, &size) != 0)
      throw std::runtime_error("no port");
    port_ = ntohs(address.sin_port);
  }
  ~SilentServer() { close(fd_); }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/"; }

 private:
  int fd_, port_ = 0;
};

TEST(Http, SaysNothingOfAProxysPassword) {
  for (const char* proxy : {"http://me:sec#ret@127.0.0.1:9", "http://me:sec/ret@127.0.0.1:9", "http://me:sec ret@127.0.0.1:9",
                            "http://me:secret@127.0.0.1:port", "odd://me:secret@127.0.0.1:9", "http://me:7531/ret@127.0.0.1:9"}) {
    setenv("http_proxy", proxy, 1);
    std::string said;
    try {
      Request request;
      request.url = "http://hub.invalid/";
      Client().send(request);
    } catch (const NetworkError& e) {
      said = e.what();
    }
    unsetenv("http_proxy");
    EXPECT_NE(said.find("http_proxy"), std::string::npos) << said;
    for (const char* part : {"sec", "ret", "7531"}) EXPECT_EQ(said.find(part), std::string::npos) << said;
  }
}

TEST(Client, APipeSignalWithinATransferIsNotTheEnd) {
  const SilentServer server;
  Client client;
  Request request;
  request.url = server.url();
  request.keep_going = [] {
    raise(SIGPIPE);  // like OpenSSL if the other side has closed the connection
    return false;
  };
  EXPECT_THROW(client.send(request), NetworkError);
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  EXPECT_EQ(sigismember(&now, SIGPIPE), 0) << "the signal is unblocked again";
}

}  // namespace
}  // namespace qft::net
