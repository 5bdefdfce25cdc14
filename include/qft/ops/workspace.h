// The operations' scratch memory: named tensors that persist between calls, so that steps after the first allocate nothing and
// touch no fresh pages.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Grow-only scratch on one device, for one thread. A tensor stays valid until the next get() of the same name. Names that start
/// with "op." belong to the operations, which never use one after they return.
class Workspace {
 public:
  explicit Workspace(c10::Device device) : device_(device) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Returns an uninitialised contiguous tensor in the memory kept under `name`.
  at::Tensor get(std::string_view name, at::IntArrayRef shape, at::ScalarType dtype);
  /// Addresses of some of the workspace's buffers.
  class BufferAddresses {
   public:
    /// True if none of the buffers has moved. The workspace must be alive.
    bool unmoved() const;

   private:
    friend class Workspace;
    std::map<const at::Tensor*, const void*> addresses_;  ///< by buffer of the workspace
  };
  /// Runs `body` and returns the addresses of all tensors that it requested. Calls must not nest.
  BufferAddresses addresses_used_by(const std::function<void()>& body);

  /// Bytes of memory in use. On the host, which allocates pages on first touch: the largest requests; elsewhere: everything
  /// reserved.
  std::int64_t bytes_in_use() const;
  /// Frees all buffers; tensors handed out live as long as somebody holds them.
  void clear();
  c10::Device device() const { return device_; }

 private:
  c10::Device device_;
  struct Buffer {
    at::Tensor bytes;
    std::int64_t largest_request = 0;  ///< largest request in bytes
  };
  std::map<std::string, Buffer, std::less<>> buffers_;  ///< entries are never erased, because BufferAddresses points to them
  BufferAddresses* recording_ = nullptr;
};

}  // namespace qft::ops
