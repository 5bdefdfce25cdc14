#include "hub/patience.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace qft::hub {
namespace {

using std::chrono::seconds;

net::Response answer(const std::string& name, const std::string& value) {
  net::Response response;
  response.headers = {{name, value}};
  return response;
}

TEST(Patience, WaitsAsLongAsServersAsk) {
  const std::time_t now = 1'784'635'200;  // Tue, 21 Jul 2026 12:00:00 GMT
  for (const auto& [name, value, expected] : {std::tuple{"retry-after", "17", 17},
                                              {"retry-after", "Tue, 21 Jul 2026 12:01:30 GMT", 90},
                                              {"retry-after", "Tue, 21 Jul 2026 11:00:00 GMT", 0},
                                              {"retry-after", "soon", 0},
                                              {"ratelimit", "\"api\";r=0;t=55", 55},
                                              {"ratelimit", "\"api\";r=0", 0},
                                              {"date", "17", 0}})
    EXPECT_EQ(asked_wait(answer(name, value), now).count(), expected) << value;
}

TEST(Patience, EndsWhereItIsEnough) {
  std::vector<std::string> said;
  RetryTimer patience({.patience = seconds(1)}, [&](const std::string& words) { said.push_back(words); });
  EXPECT_FALSE(patience.wait("busy", seconds(300))) << "longer than there is patience";
  RetryTimer other({.patience = seconds(1)}, [&](const std::string& words) { said.push_back(words); });
  int tries = 0;
  while (tries < 10 && other.wait("busy")) ++tries;
  EXPECT_EQ(tries, 1) << "half a second, and then a whole one would be too much";
  EXPECT_TRUE(said.empty());
}

TEST(Patience, IsSaidAndEndsOnRequest) {
  std::vector<std::string> said;
  int asked = 0;
  RetryTimer patience({.keep_going = [&] { return ++asked < 3; }}, [&](const std::string& words) { said.push_back(words); });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(patience.wait("hub answers 429", seconds(30)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(5));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(said[0].starts_with("hub answers 429: trying again in 3")) << said[0];
}

}  // namespace
}  // namespace qft::hub
