#include "eval/class_lines.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace qft::eval {
namespace {

TEST(ClassLines, SayTheLikeliestLabelAllLikelyOnesOrTheValue) {
  const std::vector<float> values = {-1.0F, 2.0F, 0.5F};
  EXPECT_TRUE(class_members("single_label_classification", values).starts_with(R"("label": 1, "probabilities": [)"));
  EXPECT_TRUE(class_members("multi_label_classification", values).starts_with(R"("label": [1, 2], "probabilities": [)"));
  EXPECT_EQ(class_members("regression", values), R"("label": [-1, 2, 0.5], "logits": [-1, 2, 0.5])");
  EXPECT_EQ(class_members("regression", std::vector<float>{0.25F}), R"("label": 0.25, "logits": [0.25])");
}

TEST(ClassLines, NameNoLabelWhereAValueIsNoNumber) {
  const std::vector<float> values = {-1.0F, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(class_members("single_label_classification", values),
            R"("label": null, "probabilities": [null, null], "logits": [-1, null])");
  EXPECT_TRUE(class_members("multi_label_classification", values).starts_with(R"("label": null, )"));
}

}  // namespace
}  // namespace qft::eval
