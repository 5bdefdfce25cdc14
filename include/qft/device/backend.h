// A kind of accelerator: the functions that LibTorch's device-neutral calls lack. Streams, events, allocators and their numbers
// are LibTorch's own (c10::Stream, c10::Event, c10::DeviceAllocator), so a device that PyTorch supports needs nothing more.
#pragma once

#include "qft/device/graph.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace qft::device {

/// Properties of one device, known before anything runs on it.
struct DeviceFacts {
  std::string name;          ///< "NVIDIA H200"
  std::string uuid;          ///< the same for every process that sees this device, whatever its index there
  std::string architecture;  ///< "compute capability 9.0"
  std::int64_t memory = 0;   ///< bytes
  /// its memory is host memory: the free system memory is free device memory, and offloading moves nothing
  bool unified = false;
  bool bf16 = true;              ///< supports bf16 matrix products
  bool torch_attention = false;  ///< LibTorch's own attention kernels run on it
  bool graphs = false;           ///< recorder() returns a recorder
  bool shareable = false;        ///< several ranks may share it
  /// for a device that is not shareable: how to make it so ("set X=1 to share them"); empty: impossible
  std::string sharing = {};
  std::string obstacle = {};  ///< why it cannot compute anything; empty: it can
};

/// Records work as graphs, and owns the memory that the recorded work allocates and frees. For one thread.
class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  /// Runs `work` with `stream` as the current stream; the work is recorded instead of queued.
  virtual std::unique_ptr<Graph> capture(const c10::Stream& stream, const std::function<void()>& work) = 0;
};

/// One kind of accelerator. It lives in a shared object beside the programs and holds none of their state: it is compiled with
/// our headers but not linked with our libraries. Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  ///< the word for `device`: "cuda"
  virtual c10::DeviceType type() const = 0;
  virtual std::string library_version() const = 0;  ///< "CUDA 13.0"

  /// Returns the number of devices that this process sees; if 0, sets `why` to the reason.
  virtual int count(std::string& why) const = 0;
  virtual DeviceFacts facts(int index) const = 0;

  /// Allocates pinned, page-aligned host memory; null if none is left.
  virtual void* allocate_pinned(std::size_t bytes) const = 0;
  virtual void free_pinned(void* data) const = 0;
  /// Queues a copy between host and device memory, in either direction, on `stream`.
  virtual void copy_bytes(void* to, const void* from, std::size_t bytes, const c10::Stream& stream) const = 0;

  /// Makes LibTorch throw c10::Error, in the whole process, when it would make the host wait for a device. is_refusal()
  /// recognises the error's text.
  virtual void refuse_waits(bool refuse) const = 0;
  virtual bool is_refusal(std::string_view text) const = 0;

  /// Returns null if the device cannot record work (DeviceFacts::graphs).
  virtual std::unique_ptr<GraphRecorder> recorder(int index) const = 0;

  /// Returns the back end's part for a higher module ("ops", "optim", "comm"), of a type that the module declares. Null if there
  /// is none.
  virtual const void* part(std::string_view module) const = 0;
};

/// Symbols that a back end's shared object exports: a text that identifies the build, which must equal the programs', and the
/// function that returns the Backend.
using BackendAbi = const char* const;
inline constexpr const char* kBackendAbi = "qft_device_backend_abi";
using BackendFunction = const Backend* (*)();
inline constexpr const char* kBackendFunction = "qft_device_backend";

}  // namespace qft::device
