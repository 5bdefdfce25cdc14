#include "sum_tree.h"

#include "qft/core/error.h"
#include "qft/parallel/sharded_buffer.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

namespace qft::parallel {
namespace {

bool is_left_sibling(const TreeNode& left, const TreeNode& node) {
  return left.level == node.level && node.index % 2 == 1 && left.index == node.index - 1;
}

TreeNode parent_of(const TreeNode& node) {
  return {node.level + 1, node.index / 2};
}

}  // namespace

std::vector<TreeNode> nodes_of(std::int64_t first, std::int64_t count) {
  std::vector<TreeNode> nodes;
  for (std::int64_t leaf = first; leaf < first + count; ++leaf) {
    TreeNode node{0, leaf};
    for (; !nodes.empty() && is_left_sibling(nodes.back(), node); nodes.pop_back()) node = parent_of(node);
    nodes.push_back(node);
  }
  return nodes;
}

void SumTree::add(TreeNode node, const at::Tensor& values) {
  QFT_ASSERT(nodes_.empty() || (nodes_.back().index + 1) << nodes_.back().level == node.index << node.level,
             "node {} of level {} follows node {} of level {}", node.index, node.level, nodes_.back().index, nodes_.back().level);
  at::Tensor sum;
  while (!nodes_.empty() && is_left_sibling(nodes_.back(), node)) {
    sums_.back().add_(sum.defined() ? sum : values);
    if (sum.defined()) spare_.push_back(sum);
    sum = std::move(sums_.back());
    sums_.pop_back();
    nodes_.pop_back();
    node = parent_of(node);
  }
  sums_.push_back(sum.defined() ? sum : copy_of(values));
  nodes_.push_back(node);
}

at::Tensor SumTree::finish() {
  if (sums_.empty()) return {};
  while (sums_.size() > 1) {
    const at::Tensor right = std::move(sums_.back());
    sums_.pop_back();
    sums_.back().add_(right);
    spare_.push_back(right);
  }
  at::Tensor sum = std::move(sums_.back());
  spare_.push_back(sum);
  sums_.clear();
  nodes_.clear();
  return sum;
}

void SumTree::clear() {
  spare_.insert(spare_.end(), sums_.begin(), sums_.end());
  sums_.clear();
  nodes_.clear();
}

at::Tensor SumTree::copy_of(const at::Tensor& values) {
  at::Tensor copy;
  if (!spare_.empty() && spare_.back().numel() == values.numel()) {
    copy = std::move(spare_.back());
    spare_.pop_back();
  } else {
    copy = at::empty(values.sizes(), values.options().dtype(wide(values.scalar_type())));
    allocated_ += static_cast<std::int64_t>(copy.nbytes());
    peak_ = std::max(peak_, allocated_);
  }
  return copy.copy_(values);
}

}  // namespace qft::parallel
