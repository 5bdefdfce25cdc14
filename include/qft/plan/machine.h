// A machine as `qft plan` knows it: rates, sizes and links, from a YAML file of flat keys.
#pragma once

#include "qft/config/field.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

namespace qft::plan {

/// GB is 1e9 bytes, TFLOPS 1e12 operations a second (a multiplication and an addition are two). Links are per direction.
/// A number that is not given is 0.
struct Machine {
  std::string name;                  ///< one line
  std::string source;                ///< where the numbers come from
  std::vector<std::string> assumed;  ///< keys whose values nobody has measured

  std::string device = "cuda";
  bool unified = false;  ///< the device's memory is the host's
  std::int64_t ranks_per_node = 1;
  std::int64_t threads_per_rank = 0;  ///< compute threads on the CPU; 0: as many as the process that plans has
  double memory_gb = 0;               ///< of a rank's device; on the CPU and where unified of the node, shared by its ranks
  double host_memory_gb = 0;          ///< of a node
  double process_gb = 0;              ///< what a process takes of `memory_gb` before it holds any of the model

  double matmul_tflops_bf16 = 0, matmul_tflops_fp16 = 0, matmul_tflops_fp32 = 0, matmul_tflops_fp64 = 0;
  double matmul_efficiency = 1;     ///< of these, what the model's shapes reach
  double narrow_efficiency = 0;     ///< what LoRA's narrow products reach
  double attention_efficiency = 0;  ///< what attention reaches, counted without the masked half
  double memory_gb_s = 0;           ///< bandwidth of the device's memory for norms, activations and the optimizer
  double host_device_gb_s = 0;      ///< between host and device memory

  double node_gb_s = 0, node_latency_us = 0;        ///< from a rank to another one of its node
  double network_gb_s = 0, network_latency_us = 0;  ///< of a node
  double compute_s_per_gb = 0;  ///< compute seconds that a received GB costs a rank: MPI and the kernel on the same cores

  bool is_cpu() const { return device == "cpu"; }
  void visit(const config::FieldVisitor& field);

  /// Throws ConfigError naming file, line and key for what is unknown, of the wrong type or missing.
  static Machine load(const std::filesystem::path& file);
  /// The file's text; load() of it gives the same machine.
  std::string to_yaml() const;

  /// Operations a second of a large product in this type. Throws ConfigError where the description has none.
  double matmul_flops(at::ScalarType type) const;
  /// Bytes that a rank can take: of its device, or its share of the node's memory.
  std::int64_t memory_of_a_rank(std::int64_t ranks) const;
  /// Ranks that share a node's memory, of `ranks`.
  std::int64_t ranks_of_a_node(std::int64_t ranks) const { return std::max<std::int64_t>(1, std::min(ranks_per_node, ranks)); }
};

/// The machine that `asked` names: a path (with a / or an ending .yaml, .yml or .json), the name of a description (h100) that
/// lies in $QFT_MACHINES or in share/qft/configs/machines beside the program's folder, or any other file; after commas keys that
/// differ
/// ("h100,network_gb_s=92"). Throws ConfigError with the nearest name and the list of names if there is none, and as
/// Machine::load() does.
Machine find_machine(const std::string& asked);

/// A line for each description that has a name: "h100  8 x ...", sorted; for one that cannot be read its error.
std::string list_machines();

/// What a group of ranks has of the links on its way.
struct Link {
  double bytes_per_second = 0;
  double latency = 0;  ///< seconds a hop
};

/// Of a ring over `ranks` ranks that lie `stride` apart, where every other such group of the job runs its own at the same time.
/// Throws ConfigError where the description has no such link.
Link link_of(const Machine& machine, int ranks, int stride);

}  // namespace qft::plan
