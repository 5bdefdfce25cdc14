#include "raw_tensor.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

namespace qft::sim {
namespace {

constexpr std::size_t kMostRuns = 4096;  // per strided tensor; above this its whole span counts

}  // namespace

RawTensor::RawTensor(const at::Tensor& tensor)
    : storage_data_(tensor.storage().unsafeGetStorageImpl()->mutable_data_ptr().get()),
      storage_bytes_(tensor.storage().nbytes()),
      offset_(tensor.storage_offset()),
      sizes_(tensor.sizes()),
      strides_(tensor.strides()),
      type_(tensor.scalar_type()) {
  TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), "sim: conjugated and negated views are not known");
  const auto needed = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(), offset_);
  TORCH_CHECK(tensor.numel() == 0 || needed <= storage_bytes_, "sim: a tensor of ", tensor.sizes(), " needs ", needed,
              " bytes of a storage that has ", storage_bytes_, ": it was freed, or made smaller");
}

c10::Storage RawTensor::storage() const {
  return {c10::Storage::use_byte_size_t(), storage_bytes_, c10::DataPtr(writable(storage_data_), c10::Device(c10::kCPU)),
          /*allocator=*/nullptr, /*resizable=*/false};
}

at::Tensor RawTensor::cpu(const c10::Storage& storage) const {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         c10::scalarTypeToTypeMeta(type_));
  tensor.unsafeGetTensorImpl()->set_storage_offset(offset_);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes_, strides_);
  return tensor;
}

void RawTensor::add_accesses(bool write, std::vector<Access>& accesses) const {
  const auto item = static_cast<std::int64_t>(c10::elementSize(type_));
  const auto* const first = static_cast<const std::byte*>(storage_data_) + offset_ * item;
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride in bytes and size, the closest elements first
  for (std::size_t d = 0; d < sizes_.size(); ++d) {
    if (sizes_[d] == 0) return;
    if (sizes_[d] > 1 && strides_[d] != 0) dims.emplace_back(strides_[d] * item, sizes_[d]);
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t run = item;  // bytes without a gap
  std::size_t d = 0;
  for (; d < dims.size() && dims[d].first <= run; ++d) run += (dims[d].second - 1) * dims[d].first;
  std::int64_t runs = 1, span = run;
  for (std::size_t outer = d; outer < dims.size(); ++outer) {
    runs *= dims[outer].second;
    span += (dims[outer].second - 1) * dims[outer].first;
  }
  if (runs > static_cast<std::int64_t>(kMostRuns)) return accesses.push_back({first, static_cast<std::size_t>(span), write});
  for (std::int64_t r = 0; r < runs; ++r) {
    std::int64_t rest = r, at = 0;
    for (std::size_t outer = d; outer < dims.size(); ++outer) {
      at += rest % dims[outer].second * dims[outer].first;
      rest /= dims[outer].second;
    }
    accesses.push_back({first + at, static_cast<std::size_t>(run), write});
  }
}

}  // namespace qft::sim
