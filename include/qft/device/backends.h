// The kinds of accelerators that this process can use.
#pragma once

#include "qft/device/backend.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qft::device {

/// One kind, and whether it can be used here.
struct BackendEntry {
  std::string name;                  ///< "cuda"
  const Backend* backend = nullptr;  ///< null: not loaded
  int count = 0;                     ///< devices that this process sees
  std::string why = {};              ///< count is 0 because of this
  bool broken = false;               ///< count is 0, though the driver shows a device, or should
  std::string note = {};             ///< what its user should know where it works
};

/// Loads every back end whose file lies beside the programs and whose driver and device are there. QFT_DEVICE may name a kind
/// that has no row in the table: it is loaded from libqft_NAME.so, and no other is. LibTorch looks for devices once: call this
/// before its first operation. Later calls return what the first one found.
std::span<const BackendEntry> load_backends();

/// "cpu" and the kinds of load_backends(), loading none.
std::vector<std::string> kind_names();

/// That of a kind by its name; null where there is no such kind.
const BackendEntry* find_entry(std::string_view kind);

/// That of a kind of device; null for the CPU, and for kinds that are not loaded.
const Backend* find_backend(c10::DeviceType type);
/// That of `device`, which is no CPU; throws Error where it is not loaded.
const Backend& backend_of(c10::Device device);

/// What is known of `device`, which is no CPU; asked for once.
const DeviceFacts& facts_of(c10::Device device);

/// False where the device's memory is the host's: on the CPU, and on devices with unified memory. What is offloaded from there
/// would stay where it is.
bool has_own_memory(c10::Device device);

/// True where work on the device can be recorded as a graph. False on the CPU.
bool records_graphs(c10::Device device);

/// Kinds that should work and do not, and what else to know of those that do: nothing where all is well.
std::vector<std::string> backend_warnings();

/// Why nothing can be computed on device `index` of `kind`, with its name and what to do; empty: it can.
std::string obstacle_of(std::string_view kind, int index);

/// The part of `device`'s back end for `module`; null where it has none, and for the CPU.
template <class Part>
const Part* part_of(c10::Device device, std::string_view module) {
  const Backend* backend = device.is_cpu() ? nullptr : find_backend(device.type());
  return backend == nullptr ? nullptr : static_cast<const Part*>(backend->part(module));
}

}  // namespace qft::device
