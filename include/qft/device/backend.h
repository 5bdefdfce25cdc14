// A kind of accelerator: what LibTorch's device-neutral calls leave out. Streams, events, allocators and their numbers are
// LibTorch's own (c10::Stream, c10::Event, c10::DeviceAllocator), so a device that PyTorch knows needs no more than this.
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

/// What is known of one device before anything runs on it.
struct DeviceFacts {
  std::string name;              ///< "NVIDIA H200"
  std::string uuid;              ///< the same for every process that sees this device, whatever its index there
  std::string architecture;      ///< "compute capability 9.0"
  std::int64_t memory = 0;       ///< bytes
  bool unified = false;          ///< its memory is the host's: what is left is what the system has left, offloading moves nothing
  bool bf16 = true;              ///< it multiplies bf16
  bool torch_attention = false;  ///< LibTorch's own attention kernels run on it
  bool graphs = false;           ///< recorder() gives one
  bool shareable = false;        ///< several ranks may take it
  std::string sharing = {};      ///< what lets several ranks take it where they may not: "set X=1 to share them"; empty: nothing
  std::string obstacle = {};     ///< why nothing can be computed on it; empty: it can
};

/// Records work as graphs, and owns the memory that this work allocates and frees. For one thread.
class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  /// Runs `work` with `stream` as the current one: it is recorded instead of queued.
  virtual std::unique_ptr<Graph> capture(const c10::Stream& stream, const std::function<void()>& work) = 0;
};

/// One kind of accelerator. It lies in a shared object beside the programs, which holds no state of theirs: it is compiled with
/// our headers, but linked with none of our libraries. Calls may come from any thread.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  ///< the word for `device`: "cuda"
  virtual c10::DeviceType type() const = 0;
  virtual std::string library_version() const = 0;  ///< "CUDA 13.0"

  /// Devices that this process sees; where there are none, `why` gets the reason.
  virtual int count(std::string& why) const = 0;
  virtual DeviceFacts facts(int index) const = 0;

  /// Pinned host memory, at a page's start; null where there is none left.
  virtual void* allocate_pinned(std::size_t bytes) const = 0;
  virtual void free_pinned(void* data) const = 0;
  /// Queues a copy between host and device memory, in either direction, on `stream`.
  virtual void copy_bytes(void* to, const void* from, std::size_t bytes, const c10::Stream& stream) const = 0;

  /// From now on, in the whole process, LibTorch throws c10::Error where it would make the host wait for a device; its text is
  /// one that is_refusal() knows.
  virtual void refuse_waits(bool refuse) const = 0;
  virtual bool is_refusal(std::string_view text) const = 0;

  /// Null where the device cannot record work (DeviceFacts::graphs).
  virtual std::unique_ptr<GraphRecorder> recorder(int index) const = 0;

  /// What a module above this one wants of a back end, of a type that the module declares: "ops", "optim", "comm". Null: nothing.
  virtual const void* part(std::string_view module) const = 0;
};

/// What a back end's shared object exports, under these names: a text of the build, which must be the programs' own, and the
/// table.
using BackendAbi = const char* const;
inline constexpr const char* kBackendAbi = "qft_device_backend_abi";
using BackendFunction = const Backend* (*)();
inline constexpr const char* kBackendFunction = "qft_device_backend";

}  // namespace qft::device
