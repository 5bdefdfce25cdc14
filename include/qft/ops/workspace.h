// Scratch memory of the operations: named tensors that are kept from call to call, so that a step allocates
// nothing and touches no fresh page after the first one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Grow-only scratch on one device, for one thread. A tensor handed out stays valid until the next get() of
/// the same name; names that start with "op." belong to the operations, which never keep one past their return.
class Workspace {
 public:
  explicit Workspace(c10::Device device) : device_(device) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// An uninitialised contiguous tensor of this shape over the memory kept under `name`.
  at::Tensor get(std::string_view name, at::IntArrayRef shape, at::ScalarType dtype);
  /// Where the memory of some names lies.
  class Places {
   public:
    /// Whether it lies there still. The workspace must be alive.
    bool unmoved() const;

   private:
    friend class Workspace;
    std::map<const at::Tensor*, const void*> addresses_;  ///< of the workspace's buffers
  };
  /// Runs `body` and returns the places of all tensors that it asked for. Not to be nested.
  Places places_used_by(const std::function<void()>& body);

  /// Bytes of memory in use: on the host, which allocates a page when it is first touched, the largest requests; elsewhere all
  /// that is reserved.
  std::int64_t held() const;
  /// Gives everything back; tensors handed out stay alive for as long as somebody holds them.
  void clear();
  c10::Device device() const { return device_; }

 private:
  c10::Device device_;
  struct Buffer {
    at::Tensor bytes;
    std::int64_t most = 0;  ///< that was asked for
  };
  std::map<std::string, Buffer, std::less<>> buffers_;  ///< names stay, for Places
  Places* watched_ = nullptr;
};

}  // namespace qft::ops
