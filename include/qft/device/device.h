// Which device this process computes on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <c10/core/Device.h>

namespace qft::device {

/// What parse_device() knows, for help and messages: "auto, cpu, cuda or cuda:N".
std::string device_words();

struct DeviceWish {
  std::string kind;          ///< "auto", "cpu" or a back end's name
  std::optional<int> index;  ///< of "cuda:1"
};
/// For "auto" what QFT_DEVICE says, where it is set. Throws ConfigError for an unknown word.
DeviceWish parse_device(std::string_view wish);

/// The kind that a process takes for `wish`: "cpu" or a back end's name that has devices here; for "auto" that of the
/// first back end with devices. Throws ConfigError with the reason where the kind asked for, or its index, is not here.
std::string kind_for(const DeviceWish& wish);

/// Devices of a kind that this process sees: 1 for "cpu", 0 for one that is not loaded.
int device_count(std::string_view kind);

/// Device `index` of `kind`, made the current one of this thread.
c10::Device use_device(std::string_view kind, int index);

/// kind_for() and use_device() for one process alone, which takes the first device unless `wish` names one. Ranks of a job
/// choose together (comm::choose_device).
c10::Device select_device(std::string_view wish);

/// "NVIDIA H200, 139.8 GiB, compute capability 9.0" or the CPU's model name.
std::string describe(c10::Device device);

/// "LibTorch 2.11.0, CUDA 13.0", or "LibTorch 2.11.0" where only the CPU is used.
std::string library_version();

/// A line for each kind: "cuda: 2 devices (NVIDIA H200, ...), CUDA 13.0" or "cuda: not used: no NVIDIA driver: ...".
std::string describe_backends();

}  // namespace qft::device
