// Sums whose bits do not depend on who added what: node (level, index) of a binary tree is the sum of the leaves
// [index 2^level, (index + 1) 2^level), always left child + right child. Private to parallel.
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

/// The largest nodes that make up the leaves [first, first + count), in order: what a SumTree holds after these leaves.
std::vector<TreeNode> nodes_of(std::int64_t first, std::int64_t count);

/// The sums of consecutive leaves so far.
class SumTree {
 public:
  /// The next node in order, added to its left sibling where that is here: `values` are copied, or added.
  void add(TreeNode node, const at::Tensor& values);
  /// The values of nodes_of() what was added.
  const std::vector<at::Tensor>& sums() const { return sums_; }
  /// Of all leaves: the root, where leaves behind the last one count as nothing; undefined if there was none. Valid until
  /// the next add(), which starts a new tree.
  at::Tensor finish();
  void clear();
  /// Of the sums, at most so far.
  std::int64_t bytes() const { return peak_; }

 private:
  at::Tensor copy_of(const at::Tensor& values);
  std::vector<TreeNode> nodes_;
  std::vector<at::Tensor> sums_;
  std::vector<at::Tensor> spare_;  ///< memory for more sums
  std::int64_t allocated_ = 0, peak_ = 0;
};

}  // namespace qft::parallel
