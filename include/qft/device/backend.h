// A kind of accelerator: what LibTorch's device-neutral calls leave out. Streams, events, allocators and copies are LibTorch's own
// (c10::Stream, c10::Event, c10::DeviceAllocator), so that a device which PyTorch knows needs no more than this.
#pragma once

#include "qft/device/graph.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <c10/core/Device.h>

namespace qft::device {

/// What is known of one device before anything runs on it.
struct DeviceFacts {
  std::string name;                    ///< "NVIDIA H200"
  std::string uuid;                    ///< the same on every rank that sees this device, whatever its index there
  std::string architecture;            ///< "compute capability 9.0"
  std::int64_t memory = 0;             ///< bytes
  bool unified = false;                ///< its memory is the host's: what is left is the system's
  bool bf16 = true, fused_attention = false;  ///< products of bf16; LibTorch's own attention kernels run on it
};

/// Records work into graphs; owns the memory that they allocate and free. For one thread.
class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  /// Runs `work`, with `stream` current, which then queues nothing but is recorded.
  virtual std::unique_ptr<Graph> capture(const c10::Stream& stream, const std::function<void()>& work) = 0;
};

/// One kind of accelerator, in a shared object that the programs load where it can work. Thread-safe where not said otherwise.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  ///< as `device` has it: "cuda"
  virtual c10::DeviceType type() const = 0;
  virtual std::string library_version() const = 0;  ///< "CUDA 13.0"

  /// Devices that this process sees. 0: `why` says the reason.
  virtual int count(std::string& why) const = 0;
  virtual DeviceFacts facts(int index) const = 0;

  /// Pinned host memory, page-aligned; null where there is none left.
  virtual void* allocate_pinned(std::size_t bytes) const = 0;
  virtual void free_pinned(void* data) const = 0;
  /// Queues a copy between host and device memory in either direction on `stream`.
  virtual void copy_bytes(void* to, const void* from, std::size_t bytes, const c10::Stream& stream) const = 0;
  /// From now on LibTorch throws c10::Error, whose text is_refusal() knows, where it would make the host wait for a device; in the
  /// whole process.
  virtual void refuse_waits(bool refuse) const = 0;
  virtual bool is_refusal(std::string_view what) const = 0;

  virtual std::unique_ptr<GraphRecorder> recorder(int index) const = 0;

  /// The back end's part for a module above this one, as that module declares it ("ops", "optim", "comm"); null: it has none.
  virtual const void* part(std::string_view module) const = 0;
};

/// The one function of a back end's shared object, by the name kBackendSymbol. The object and the programs come from one build.
using BackendFunction = const Backend* (*)();
inline constexpr const char* kBackendSymbol = "qft_device_backend";

}  // namespace qft::device
