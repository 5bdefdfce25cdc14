// The machine that `qft plan` plans for: rates, sizes and links, read from a YAML file of flat keys.
#pragma once

#include "qft/config/field.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

namespace qft::plan {

/// GB is 1e9 bytes; TFLOPS is 1e12 operations a second (a multiplication and an addition are two). Links are per direction. A
/// number that is not given is 0.
struct Machine {
  std::string name;                  ///< one line
  std::string source;                ///< where the numbers come from
  std::vector<std::string> assumed;  ///< keys with values that nobody has measured

  std::string device = "cuda";
  bool unified = false;  ///< the device uses host memory
  std::int64_t ranks_per_node = 1;
  std::int64_t threads_per_rank = 0;  ///< compute threads on the CPU; 0: as in the planning process
  double memory_gb = 0;               ///< per rank; on the CPU or if unified: per node, shared by its ranks
  double host_memory_gb = 0;          ///< per node
  double process_gb = 0;              ///< part of memory_gb that a process takes before it loads the model

  double matmul_tflops_bf16 = 0, matmul_tflops_fp16 = 0, matmul_tflops_fp32 = 0, matmul_tflops_fp64 = 0;
  double matmul_efficiency = 1;     ///< fraction of the TFLOPS that the model's shapes reach
  double narrow_efficiency = 0;     ///< fraction that LoRA's narrow products reach
  double attention_efficiency = 0;  ///< fraction that attention reaches, not counting the masked half
  double memory_gb_s = 0;           ///< device memory bandwidth in norms, activations and the optimizer
  double host_device_gb_s = 0;      ///< between host and device memory

  double node_gb_s = 0, node_latency_us = 0;        ///< between ranks of a node
  double network_gb_s = 0, network_latency_us = 0;  ///< of a node's network
  double compute_s_per_gb = 0;  ///< compute seconds that a rank loses per GB received: MPI and the kernel share its cores

  bool is_cpu() const { return device == "cpu"; }
  void visit(const config::FieldVisitor& field);

  /// Reads a description. Throws ConfigError with file, line and key if a key is unknown, missing or of the wrong type.
  static Machine load(const std::filesystem::path& file);
  /// Returns the file's text. load() of that text gives the same machine.
  std::string to_yaml() const;

  /// Returns the operations per second of a large product in this type. Throws ConfigError if the description lacks it.
  double matmul_flops(at::ScalarType type) const;
  /// Returns the bytes that a rank can take: its device's memory, or its share of the node's.
  std::int64_t memory_of_a_rank(std::int64_t ranks) const;
  /// Returns how many of `ranks` share a node's memory.
  std::int64_t ranks_of_a_node(std::int64_t ranks) const { return std::max<std::int64_t>(1, std::min(ranks_per_node, ranks)); }
};

/// Returns the machine that `asked` names: a path (with a / or ending in .yaml, .yml or .json), the name of a description (h100)
/// in $QFT_MACHINES or in share/qft/configs/machines beside the program's folder, or any other file. Changed keys may follow
/// after commas ("h100,network_gb_s=92"). Throws ConfigError with the nearest name and the list of names if there is none, and as
/// Machine::load() does.
Machine find_machine(const std::string& asked);

/// Returns the names of the descriptions that find_machine() finds by name, sorted.
std::vector<std::string> machine_names();

/// Returns a sorted line per named description: "h100  8 x ...", or its error if it cannot be read.
std::string list_machines();

/// A group's share of the links between its ranks.
struct Link {
  double bytes_per_second = 0;
  double latency = 0;  ///< seconds per hop
};

/// Returns the link of a ring over `ranks` ranks that lie `stride` apart, while every other such group of the job runs its own
/// ring. Throws ConfigError if the description lacks this link.
Link link_of(const Machine& machine, int ranks, int stride);

}  // namespace qft::plan
