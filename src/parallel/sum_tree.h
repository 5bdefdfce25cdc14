// Sums with the same bits no matter which rank adds what. Node (level, index) of a binary tree is the sum of the leaves [index
// 2^level, (index + 1) 2^level), always computed as left child + right child. Private to parallel.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

struct TreeNode {
  int level = 0;
  std::int64_t index = 0;
  bool operator==(const TreeNode&) const = default;
};

/// Returns the largest nodes that make up the leaves [first, first + count), in order: the nodes of a SumTree after these leaves.
std::vector<TreeNode> nodes_of(std::int64_t first, std::int64_t count);

/// The partial sums of consecutive leaves.
class SumTree {
 public:
  /// Adds the next node in order: copies `values`, or adds them to the left sibling if that is here.
  void add(TreeNode node, const at::Tensor& values);
  /// Returns the values of the nodes: nodes_of() the added leaves.
  const std::vector<at::Tensor>& sums() const { return sums_; }
  /// Returns the root, the sum of all leaves; missing leaves after the last one count as zero. Undefined without leaves. Valid
  /// until the next add(), which starts a new tree.
  at::Tensor finish();
  void clear();
  /// Returns the peak bytes of the sums.
  std::int64_t bytes() const { return peak_; }

 private:
  at::Tensor copy_of(const at::Tensor& values);
  std::vector<TreeNode> nodes_;
  std::vector<at::Tensor> sums_;
  std::vector<at::Tensor> spare_;  ///< freed sums, for reuse
  std::int64_t allocated_ = 0, peak_ = 0;
};

}  // namespace qft::parallel
