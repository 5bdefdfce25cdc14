#include "qft/device/box_copy.h"

namespace qft::device {
namespace {

at::Tensor region(at::Tensor whole, const Box& box) {
  for (std::size_t d = 0; d < box.start.size(); ++d)
    whole = whole.narrow(static_cast<std::int64_t>(d), box.start[d], box.extent[d]);
  return whole;
}

template <class Use>
void for_each_box(const at::Tensor& whole, const std::vector<Box>& boxes, const at::Tensor& flat, const Use& use) {
  std::int64_t at = 0;
  for (const Box& box : boxes) {
    const at::Tensor there = region(whole, box);
    use(there, flat.narrow(0, at, there.numel()).view(there.sizes()));
    at += there.numel();
  }
}

}  // namespace

at::Tensor adjacent(const at::Tensor& whole, const std::vector<Box>& boxes) {
  if (boxes.size() != 1) return {};
  const at::Tensor only = region(whole, boxes.front());
  return only.is_contiguous() ? only.view(-1) : at::Tensor();
}

void from_boxes(const at::Tensor& flat, const std::vector<Box>& boxes, const at::Tensor& whole) {
  for_each_box(whole, boxes, flat, [](const at::Tensor& there, const at::Tensor& here) { there.copy_(here); });
}

void to_boxes(const at::Tensor& whole, const std::vector<Box>& boxes, const at::Tensor& flat) {
  for_each_box(whole, boxes, flat, [](const at::Tensor& there, const at::Tensor& here) { here.copy_(there); });
}

}  // namespace qft::device
