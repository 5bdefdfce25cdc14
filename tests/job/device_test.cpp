// Tests jobs with devices that hang in a collective, or with collectives that fail while the hosts wait: they must end and name
// the culprit.
#include <algorithm>

#include "jobs.h"

namespace {

using namespace qft::job::test;

Ending run_on_sim(const std::string& way, const std::string& settings = "") {
  return run(way, 3, "QFT_DEVICE=sim " + settings);
}

void expect_words(const Ending& ending, const std::string& words) {
  EXPECT_NE(ending.output.find(words), std::string::npos) << ending.output << "\nlacks: " << words;
}

constexpr const char* kSecond = " all_reduce(sum, F32, 1000), number 2 on 'devices', in which the devices of rank 0 on ";

TEST(DeviceJob, AHealthyOneEndsWell) {
  const auto ending = run_on_sim("");
  EXPECT_EQ(ending.code, 0) << ending.output;
  EXPECT_TRUE(ending.output.ends_with("collectives by simulated collectives\n")) << ending.output;
  EXPECT_EQ(std::ranges::count(ending.output, '\n'), 1) << ending.output;
}

TEST(DeviceJob, ARankThatNeverCallsIsNamed) {
  const auto ending = run_on_sim("last does not call");
  expect_watched(ending, "error: watchdog: rank 2 on ");
  expect_words(ending, std::string(" did not call") + kSecond);
  expect_words(ending, "phase train, waits for its device");
}

TEST(DeviceJob, ARankWhoseDeviceDoesNotComeIsNamed) {
  const auto ending = run_on_sim("the last device is busy");
  expect_watched(ending, "error: watchdog: the device of rank 2 on ");
  expect_words(ending, std::string(" has not reached") + kSecond);
}

TEST(DeviceJob, AHangWithinACollectiveIsSaidToBeOne) {
  const auto ending = run_on_sim("", "QFT_SIM_COLLECTIVE_FAULT=stall:2@1");
  expect_watched(ending, "the devices of all its ranks have been in all_reduce(sum, F32, 1000), number 2 on 'devices', for ");
}

TEST(DeviceJob, WhatTheLibrarySaysOfAStalledRankIsTold) {
  const auto ending = run_on_sim("", "QFT_SIM_COLLECTIVE_FAULT=stall:2@1 QFT_SIM_COLLECTIVE_LIMIT=0.5");
  expect_watched(ending, "'s device have failed: all_reduce(sum, F32, 1000) of rank ", 5);
  expect_words(ending, "waits for rank 1 (1 launches begun");
}

TEST(DeviceJob, AnErrorOfTheLibraryEndsTheJobWithItsText) {
  const auto ending = run_on_sim("a failure, long timeout", "QFT_SIM_COLLECTIVE_FAULT=error:2@1");
  expect_watched(ending, "error: watchdog: the collectives of rank 1 on ", 5);
  expect_words(ending, "told to fail after all_reduce(sum, F32, 1000)");
}

}  // namespace
