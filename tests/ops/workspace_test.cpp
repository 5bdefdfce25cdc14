#include "qft/ops/workspace.h"

#include "ops_support.h"

namespace qft::ops {
namespace {

TEST(Workspace, ReusesAndGrowsTheMemoryOfAName) {
  Workspace workspace(c10::Device(c10::kCPU));
  const void* first = workspace.get("a", {4, 8}, at::kFloat).data_ptr();
  EXPECT_EQ(workspace.get("a", {2, 3}, at::kBFloat16).data_ptr(), first);
  EXPECT_EQ(workspace.bytes_in_use(), 4 * 8 * 4);
  const at::Tensor larger = workspace.get("a", {16, 8}, at::kFloat);
  EXPECT_EQ(larger.sizes(), at::IntArrayRef({16, 8}));
  EXPECT_TRUE(larger.is_contiguous());
  EXPECT_EQ(workspace.bytes_in_use(), 16 * 8 * 4);
}

TEST(Workspace, ReportsRequestsNotReservations) {
  Workspace workspace(c10::Device(c10::kCPU));
  workspace.get("a", {1000}, at::kFloat);  // 4096 bytes are reserved
  EXPECT_EQ(workspace.bytes_in_use(), 4000);
}

TEST(Workspace, KeepsNamesApart) {
  Workspace workspace(c10::Device(c10::kCPU));
  const at::Tensor a = workspace.get("a", {64}, at::kFloat).fill_(1.0);
  workspace.get("b", {64}, at::kFloat).fill_(2.0);
  EXPECT_EQ(a.sum().item<double>(), 64.0);
}

TEST(Workspace, ClearLetsGoButNotOfTensorsInUse) {
  Workspace workspace(c10::Device(c10::kCPU));
  const at::Tensor kept = workspace.get("a", {8}, at::kFloat).fill_(3.0);
  workspace.clear();
  EXPECT_EQ(workspace.bytes_in_use(), 0);
  workspace.get("a", {8}, at::kFloat).fill_(4.0);
  EXPECT_EQ(kept.sum().item<double>(), 24.0);
}

TEST(Workspace, GivesEmptyTensors) {
  Workspace workspace(c10::Device(c10::kCPU));
  EXPECT_EQ(workspace.get("a", {0, 5}, at::kFloat).numel(), 0);
}

}  // namespace
}  // namespace qft::ops
