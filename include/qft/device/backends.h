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
  std::string why = {};              ///< why count is 0
  bool broken = false;               ///< count is 0, although the driver shows a device, or should
  std::string note = {};             ///< note for the user of a working back end
};

/// Loads every back end that has a file beside the programs, a driver and a device. QFT_DEVICE may name a kind without a row in
/// the table; then libqft_NAME.so is loaded, and no other back end. Call it before LibTorch's first operation, because LibTorch
/// looks for devices once. Later calls return the first result.
std::span<const BackendEntry> load_backends();

/// Returns "cpu" and the kinds of load_backends(), without loading any.
std::vector<std::string> kind_names();

/// Returns the entry of a kind by name; null if there is none.
const BackendEntry* find_backend_entry(std::string_view kind);

/// Returns the back end of a device type; null for the CPU and for kinds that are not loaded.
const Backend* find_backend(c10::DeviceType type);
/// Returns the back end of a non-CPU `device`; throws Error if it is not loaded.
const Backend& backend_of(c10::Device device);

/// Returns the facts of a non-CPU `device`. Queries the device only once.
const DeviceFacts& facts_of(c10::Device device);

/// Returns false if the device's memory is host memory: on the CPU, and on devices with unified memory. Offloading moves nothing
/// there.
bool has_own_memory(c10::Device device);

/// Returns true if the device can record work as a graph. False on the CPU.
bool records_graphs(c10::Device device);

/// Returns warnings: kinds that should work but do not, and notes on kinds that do. Empty if all is well.
std::vector<std::string> backend_warnings();

/// Returns why device `index` of `kind` cannot compute anything, with its name and a remedy; empty if it can.
std::string obstacle_of(std::string_view kind, int index);

/// Returns the part for `module` of `device`'s back end; null if there is none, and for the CPU.
template <class Part>
const Part* part_of(c10::Device device, std::string_view module) {
  const Backend* backend = device.is_cpu() ? nullptr : find_backend(device.type());
  return backend == nullptr ? nullptr : static_cast<const Part*>(backend->part(module));
}

}  // namespace qft::device
