#include "qft/eval/evaluate.h"
#include "qft/io/file.h"

#include "io/temp_dir.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

TEST(Results, OfAllSplitsAreMerged) {
  const test::TempDir dir;
  const auto read = [&](const char* name) { return nlohmann::json::parse(io::read_text_file(dir / name)); };
  write_results(dir.path(), "train", {{"train_loss", 1.5}});
  write_results(dir.path(), "eval", {{"eval_loss", 1.25}});
  EXPECT_EQ(read("all_results.json")["train_loss"], 1.5);
  EXPECT_EQ(read("all_results.json")["eval_loss"], 1.25);
  EXPECT_FALSE(read("eval_results.json").contains("train_loss"));
}

}  // namespace
}  // namespace qft::eval
