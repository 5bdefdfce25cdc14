#include "track/event_file.h"

#include <filesystem>
#include <fstream>

#include "../../src/track/event_file.h"
#include "support/temp_files.h"
#include <gtest/gtest.h>

namespace qft::track {
namespace {

std::int64_t last_of(const LastSteps& last, const std::string& tag) {
  std::int64_t step = 0;
  while (step < 100 && !last.is_new({tag, 0, step, 0})) ++step;
  return step - 1;
}

TEST(Protobuf, IsReadAsItWasWritten) {
  MessageWriter inner, outer;
  inner.integer(1, 300).real32(2, 1.5f);
  outer.bytes(16, inner.text()).real64(3, -2.0).integer(4, ~std::uint64_t{0});
  std::vector<int> fields;
  EXPECT_TRUE(read_message(outer.text(), [&](const FieldRead& f) {
    fields.push_back(f.field);
    EXPECT_TRUE(f.field != 16 || f.bytes == inner.text());
    EXPECT_TRUE(f.field != 4 || f.integer == ~std::uint64_t{0});
  }));
  EXPECT_EQ(fields, (std::vector<int>{16, 3, 4}));
  for (std::size_t cut = 1; cut < outer.text().size(); ++cut)
    read_message(std::string_view(outer.text()).substr(0, cut), [](const FieldRead&) {});
  EXPECT_FALSE(read_message(std::string_view(outer.text()).substr(0, 3), [](const FieldRead&) {}));
}

TEST(EventFile, TellsTheLastStepOfEachTag) {
  const TempFolder folder;
  const std::filesystem::path dir = folder.path() + "/runs/a";
  {
    EventFile file(dir);
    file.start(1, 1.0);
    for (int step = 1; step <= 9; ++step) file.scalars({{"train/loss", 1.0f}}, step, 1.0);
    file.scalars({{"eval/loss", 1.0f}}, 6, 1.0);
    file.flush();
  }
  EXPECT_EQ(last_of(read_last_steps(dir), "train/loss"), 9);
  EXPECT_EQ(last_of(read_last_steps(dir), "eval/loss"), 6);
  EXPECT_EQ(last_of(read_last_steps(dir), "other"), -1);
  EventFile next(dir);
  next.start(5, 2.0);
  next.flush();
  EXPECT_EQ(last_of(read_last_steps(dir), "train/loss"), 4) << "the run continued after step 4";
  EXPECT_EQ(last_of(read_last_steps(dir), "eval/loss"), 4);
}

TEST(EventFile, IsReadUpToARecordThatIsDamaged) {
  const TempFolder folder;
  {
    EventFile file(folder.path());
    for (int step = 1; step <= 5; ++step) file.scalars({{"train/loss", 1.0f}}, step, 1.0);
    file.flush();
  }
  const auto path = std::filesystem::directory_iterator(folder.path())->path();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  EXPECT_EQ(last_of(read_last_steps(folder.path()), "train/loss"), 4);
  std::ofstream(path, std::ios::app) << "rubbish that is no record";
  EXPECT_EQ(last_of(read_last_steps(folder.path()), "train/loss"), 4);
}

}  // namespace
}  // namespace qft::track
