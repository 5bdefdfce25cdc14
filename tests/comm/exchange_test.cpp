#include "qft/comm/exchange.h"

#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <string>
#include <vector>

#include "support/world.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::comm {
namespace {

std::string message_of(const std::function<void()>& body, int& code) {
  try {
    body();
  } catch (const Error& e) {
    code = e.exit_code();
    return e.what();
  }
  return "";
}

TEST(Exchange, Values) {
  EXPECT_EQ(all_reduce_value(world(), 2), 2 * world().size());
  EXPECT_EQ(all_reduce_value(world(), world().rank() == 0, ReduceOp::max), true);
  EXPECT_DOUBLE_EQ(all_reduce_value(world(), 0.5 * world().rank(), ReduceOp::max), 0.5 * (world().size() - 1));
  EXPECT_EQ(broadcast_value(world(), world().rank() + 7L, world().size() - 1), world().size() + 6L);
  const auto all = all_gather_value(world(), world().rank() * 10);
  for (int r = 0; r < world().size(); ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], r * 10);
}

TEST(Exchange, TextsOfAnyLengthAndBytes) {
  const std::string own = world().rank() == 0 ? std::string("a\0b", 3) : std::string(100000, 'x');
  EXPECT_EQ(broadcast_string(world(), own, 0), std::string("a\0b", 3));
  EXPECT_EQ(broadcast_string(world(), "", 0), "");
  std::string mine(static_cast<std::size_t>(world().rank()) * 40000, static_cast<char>('a' + world().rank()));
  const auto all = all_gather_strings(world(), mine);
  ASSERT_EQ(all.size(), static_cast<std::size_t>(world().size()));
  for (int r = 0; r < world().size(); ++r) {
    EXPECT_EQ(all[static_cast<std::size_t>(r)], std::string(static_cast<std::size_t>(r) * 40000, static_cast<char>('a' + r)));
  }
}

TEST(Exchange, Json) {
  const nlohmann::json value = {{"rank", world().rank()}, {"list", {1, 2.5, "x"}}};
  EXPECT_EQ(broadcast_json(world(), value)["rank"], 0);
  EXPECT_EQ(broadcast_json(world(), value)["list"][2], "x");
}

TEST(Exchange, AllAgreePassesWhereNobodyFailed) {
  EXPECT_NO_THROW(all_agree(world(), ""));
}

TEST(Exchange, AnErrorEverywhereIsThrownAsItIs) {
  int code = 0;
  EXPECT_EQ(message_of([] { all_agree(world(), "no such file", kExitUsage); }, code), "no such file");
  EXPECT_EQ(code, kExitUsage);
}

TEST(Exchange, AnErrorOnSomeRanksNamesThem) {
  if (world().size() == 1) GTEST_SKIP() << "needs 2 ranks";
  int code = 0;
  const int last = world().size() - 1;
  const auto text = message_of([&] { all_agree(world(), world().rank() == last ? "cannot open x" : ""); }, code);
  EXPECT_EQ(text, "on rank " + std::to_string(last) + ": cannot open x");
  EXPECT_EQ(code, kExitFailed);
}

TEST(Exchange, AgreedKeepsTheExitCodeOfTheFailingRank) {
  int code = 0;
  const int last = world().size() - 1;
  const auto text = message_of(
      [&] {
        agreed(world(), [&] {
          if (world().rank() == last) fail_config("bad key 'x'");
        });
      },
      code);
  EXPECT_NE(text.find("bad key 'x'"), std::string::npos);
  EXPECT_EQ(code, kExitUsage);
  const auto foreign = message_of([&] { agreed(world(), [] { throw std::runtime_error("other"); }); }, code);
  EXPECT_EQ(foreign, "other");
  EXPECT_EQ(code, kExitFailed);
}

TEST(Exchange, AValueThatIsNoJsonIsAnErrorOfAll) {
  const nlohmann::json bad = {{"name", "\xff.txt"}}, good = {{"name", "x"}};
  EXPECT_THROW(broadcast_json(world(), bad), Error);
  EXPECT_EQ(broadcast_json(world(), good), good);
}

TEST(Exchange, OnRootRunsOnceAndSharesTextOrError) {
  int runs = 0;
  const auto text = on_root(world(), [&] {
    ++runs;
    return std::string("made by root");
  });
  EXPECT_EQ(text, "made by root");
  EXPECT_EQ(runs, world().rank() == 0 ? 1 : 0);
  EXPECT_THROW(on_root(world(), []() -> std::string { fail("disk full"); }), Error);
}

}  // namespace
}  // namespace qft::comm
