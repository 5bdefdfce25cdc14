// Selects the device that this process computes on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <c10/core/Device.h>

namespace qft::device {

/// Returns the words that parse_device() accepts, for help and messages: "auto, cpu, cuda or cuda:N".
std::string device_words();

struct DeviceWish {
  std::string kind;          ///< "auto", "cpu" or a back end's name
  std::optional<int> index;  ///< 1 for "cuda:1"
};
/// Parses a device word. "auto" means QFT_DEVICE's value, if it is set. Throws ConfigError for an unknown word.
DeviceWish parse_device(std::string_view wish);

/// Returns the kind that a process takes for `wish`: "cpu", or the name of a back end with devices here; for "auto" the first
/// back end with devices. Throws ConfigError with the reason if the requested kind or index is not available.
std::string kind_for(const DeviceWish& wish);

/// Returns the number of devices of a kind that this process sees: 1 for "cpu", 0 for a kind that is not loaded.
int device_count(std::string_view kind);

/// Makes device `index` of `kind` the current device of this thread and returns it.
c10::Device use_device(std::string_view kind, int index);

/// Combines kind_for() and use_device() for a single process. Takes the first device unless `wish` names one. Ranks of a job
/// choose together (comm::choose_device).
c10::Device select_device(std::string_view wish);

/// Returns "NVIDIA H200, 139.8 GiB, compute capability 9.0", or the CPU's model name.
std::string describe(c10::Device device);

/// Returns "LibTorch 2.11.0, CUDA 13.0", or "LibTorch 2.11.0" if only the CPU is used.
std::string library_version();

/// Returns a line for each kind: "cuda: 2 devices (NVIDIA H200, ...), CUDA 13.0" or "cuda: not used: no NVIDIA driver: ...".
std::string describe_backends();

}  // namespace qft::device
