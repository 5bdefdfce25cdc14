#include "train/step_trace.h"

#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::train {
namespace {

using nlohmann::ordered_json;

/// By thread name: the names of its work in order.
std::map<std::string, std::vector<std::string>> threads_of(const ordered_json& trace, int process) {
  std::map<int, std::string> names;
  std::map<std::string, std::vector<std::string>> threads;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("pid") != process) continue;
    if (event.at("name") == "thread_name") names[event.at("tid")] = event.at("args").at("name");
    if (event.at("ph") == "X") threads[names.at(event.at("tid"))].push_back(event.at("name"));
  }
  return threads;
}

TEST(StepTrace, HasAProcessARankAndAThreadALane) {
  const std::vector<RankSpans> ranks = {{"cn01", {{"main thread", "forward", 0.001, 0.003}, {"loader", "read", 0.002, 0.004}}},
                                        {"cn02", {{"main thread", "forward", 0.0, 0.5}}}};
  const ordered_json trace = trace_json(ranks, 2, 4);
  EXPECT_EQ(trace.at("otherData").at("first_step"), 2);
  EXPECT_EQ(threads_of(trace, 0),
            (std::map<std::string, std::vector<std::string>>{{"main thread", {"forward"}}, {"loader", {"read"}}}));
  EXPECT_EQ(threads_of(trace, 1), (std::map<std::string, std::vector<std::string>>{{"main thread", {"forward"}}}));
  std::map<int, std::string> processes;
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("name") == "process_name") processes[event.at("pid")] = event.at("args").at("name");
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "rank 0 on cn01"}, {1, "rank 1 on cn02"}}));
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("cat") == "loader") {
      EXPECT_DOUBLE_EQ(event.at("ts"), 2000.0);
      EXPECT_DOUBLE_EQ(event.at("dur"), 2000.0);
    }
}

TEST(StepTrace, GivesWorkThatOverlapsWithoutNestingItsOwnThreads) {
  const std::vector<RankSpans> ranks = {{"cn01",
                                         {{"collectives: shard", "gather 1", 0.0, 4.0},
                                          {"collectives: shard", "gather 2", 1.0, 5.0},
                                          {"collectives: shard", "inside 1", 2.0, 3.0},
                                          {"collectives: shard", "gather 3", 4.0, 6.0}}}};
  EXPECT_EQ(threads_of(trace_json(ranks, 1, 1), 0),
            (std::map<std::string, std::vector<std::string>>{{"collectives: shard", {"gather 1", "inside 1", "gather 3"}},
                                                             {"collectives: shard (2)", {"gather 2"}}}));
}

}  // namespace
}  // namespace qft::train
