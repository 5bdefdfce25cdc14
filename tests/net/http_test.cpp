#include "qft/net/http.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace qft::net {
namespace {

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

}  // namespace
}  // namespace qft::net
