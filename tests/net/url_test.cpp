#include "qft/net/url.h"

#include <gtest/gtest.h>

namespace qft::net {
namespace {

TEST(Url, ShowsNoPasswordAndNoSignature) {
  EXPECT_EQ(without_secrets("https://me:secret@hub.example:8443/a/b?Signature=abc#x"), "https://hub.example:8443/a/b");
  EXPECT_EQ(without_secrets("http://hub.example"), "http://hub.example");
  EXPECT_EQ(without_secrets("http://hub.example?token=t"), "http://hub.example");
  EXPECT_EQ(without_secrets("http://hub.example/a@b"), "http://hub.example/a@b");
  EXPECT_EQ(without_secrets("http://hub.example:80/a@b"), "http://hub.example:80/a@b");
  for (const char* url :
       {"https://me:pa/ss@hub.example/a", "https://me:pa#ss@hub.example/a", "https://me:p?a/ss@hub.example/a"}) {
    EXPECT_EQ(without_secrets(url), "https://hub.example/a");
    EXPECT_EQ(host_of(url), "hub.example");
  }
}

TEST(Url, HasAHost) {
  EXPECT_EQ(host_of("https://me:p@ss@hub.example:8443/a"), "hub.example:8443");
  EXPECT_EQ(host_of("hub.example/a"), "hub.example");
  EXPECT_EQ(host_of("http:///a"), "");
}

TEST(Url, HasASite) {
  EXPECT_EQ(site_of("https://me:p@Hub.Example:8443/a"), "https://hub.example:8443");
  EXPECT_NE(site_of("http://hub.example/a"), site_of("https://hub.example/a"));
  EXPECT_NE(site_of("https://hub.example/a"), site_of("https://hub.example:8443/a"));
}

TEST(Url, EncodesAndJoins) {
  EXPECT_EQ(percent_encoded("a b/c+d"), "a%20b%2Fc%2Bd");
  EXPECT_EQ(percent_encoded("refs/pr/1", "/"), "refs/pr/1");
  EXPECT_EQ(percent_encoded("模型"), "%E6%A8%A1%E5%9E%8B");
  EXPECT_EQ(join("https://hub.example/", "/api/models"), "https://hub.example/api/models");
}

}  // namespace
}  // namespace qft::net
