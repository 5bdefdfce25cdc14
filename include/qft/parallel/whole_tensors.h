// Puts logical tensors together from the boxes of the tensor ranks, for files and reports.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/device/staged_copy.h"
#include "qft/model/spec.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// Sends boxes to the ranks that need whole tensors. Holds one tensor at a time.
class WholeTensors {
 public:
  /// `wanted`: the parameters that this rank needs whole. `tensor`: the ranks that share matrices; its host side is used. Both
  /// `spec` and `tensor` must outlive the object. Collective over `tensor`.
  WholeTensors(const model::ModelSpec& spec, comm::Communicator& tensor, c10::Device device,
               const std::function<bool(const model::ParamSpec&)>& wanted);

  /// Allocates the host memory for values of this type, so that put_together() allocates nothing. Not collective.
  void reserve(at::ScalarType type);

  /// Returns the logical tensor's values in row-major order, 1-D, on the ranks that want them: in host memory, valid until the
  /// next call, or `values` itself if each rank holds the whole tensor. Undefined on the other ranks. `values`: the values of
  /// this rank's boxes, 1-D, of the type given to reserve(). Collective over `tensor`.
  at::Tensor put_together(const model::ParamSpec& param, const at::Tensor& values);

 private:
  /// A rank's boxes of a parameter.
  struct Held {
    std::vector<Box> boxes;
    bool wanted = false;
    bool first = true;  ///< no rank before it holds the same boxes
  };
  using Holders = std::vector<Held>;  ///< by tensor rank

  /// Returns this rank's values in host memory.
  at::Tensor on_host(const at::Tensor& values);

  comm::Communicator& tensor_;
  device::StagedCopy staged_;
  std::map<std::string, Holders> holders_;  ///< of the parameters that are cut
  std::int64_t largest_whole_ = 0, largest_part_ = 0, largest_own_ = 0;
  at::Tensor whole_, part_, own_;
};

}  // namespace qft::parallel
