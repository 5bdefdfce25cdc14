#include "qft/core/trace.h"

#include <gtest/gtest.h>

namespace qft {
namespace {

TEST(Trace, RecordsScopesBetweenStartAndStop) {
  {
    const trace::Scope before("main thread", "before");
  }
  trace::start();
  {
    const trace::Scope outer(trace::kMainThread, "outer");
    const trace::Scope inner(trace::kMainThread, [] { return std::string("inner"); });
  }
  const auto spans = trace::stop();
  {
    const trace::Scope after("main thread", "after");
  }
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].name, "inner");
  EXPECT_EQ(spans[1].name, "outer");
  EXPECT_LE(spans[1].begin, spans[0].begin);
  EXPECT_LE(spans[0].end, spans[1].end);
  trace::start();
  EXPECT_TRUE(trace::stop().empty());
}

TEST(Trace, DoesNotMakeNamesWhileItIsOff) {
  const trace::Scope scope("main thread", []() -> std::string { throw std::logic_error("called"); });
  EXPECT_FALSE(trace::recording());
}

TEST(Trace, LeavesOutWhatIsAddedAfterItsEnd) {
  trace::start();
  auto scope = std::make_unique<trace::Scope>("loader", "across the end");
  trace::stop();
  scope.reset();
  trace::start();
  EXPECT_TRUE(trace::stop().empty());
}

}  // namespace
}  // namespace qft
