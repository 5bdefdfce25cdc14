#include "qft/plan/machine.h"

#include "qft/config/fields_file.h"
#include "qft/config/nearest.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/program.h"
#include "qft/device/backends.h"

#include <map>
#include <set>
#include <string_view>

namespace qft::plan {
namespace {

namespace fs = std::filesystem;
using config::Field;

constexpr std::int64_t kMostRanks = 4096, kMostThreads = 65536;  ///< per node: far beyond any real one, and an int holds them

bool is_description(const fs::path& file) {
  return is_yaml_file(file) || is_json_file(file);
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// Returns the end of the name: after the longest prefix that is a file (its path may have commas), else at the first comma.
std::size_t end_of_name(const std::string& asked) {
  for (std::size_t end = asked.size(); end > 0 && end != asked.npos; end = asked.rfind(',', end - 1))
    if (is_file(asked.substr(0, end))) return end;
  return asked.find(',');
}

/// Returns the descriptions by name. Descriptions in $QFT_MACHINES hide others of the same name.
std::map<std::string, fs::path> described_machines() {
  std::map<std::string, fs::path> all;
  for (const fs::path& folder : config_folders("QFT_MACHINES", "machines")) {
    std::error_code error;
    const std::set<fs::path> files(fs::directory_iterator(folder, error), fs::directory_iterator());
    for (const fs::path& file : files)
      if (is_description(file)) all.emplace(file.stem().string(), file);
  }
  return all;
}

fs::path machine_file(const std::string& name) {
  if (name.find('/') != name.npos || is_description(name)) return name;
  const auto all = described_machines();
  if (const auto found = all.find(name); found != all.end()) return found->second;
  if (is_file(name)) return name;
  std::vector<std::string_view> names;
  std::string list;
  for (const auto& [other, file] : all) {
    names.push_back(other);
    list += (list.empty() ? "" : ", ") + other;
  }
  if (all.empty())
    fail_config("--machine {}: share/qft/configs/machines beside the program has no descriptions: give a file's path", name);
  const std::string_view near = config::nearest(name, names);
  fail_config("--machine {}: no machine has that name{} There are {}; a path to a .yaml file works too", name,
              near.empty() ? "." : fmt::format(": did you mean '{}'?", near), list);
}

}  // namespace

void Machine::visit(const config::FieldVisitor& field) {
  field(Field("name", "the machine in one line"), &name);
  field(Field("source", "where the numbers come from"), &source);
  field(Field("assumed", "keys with values that nobody has measured"), &assumed);
  static const std::vector<std::string> kinds = device::kind_names();
  Field what_computes("device", "what computes");
  what_computes.choices.assign(kinds.begin(), kinds.end());
  field(what_computes, &device);
  field(Field("unified", "the device uses host memory: nothing is offloaded, and copies for checkpoints count"), &unified);
  field(Field("ranks_per_node", "ranks on a node: one a GPU").in(1, kMostRanks), &ranks_per_node);
  field(Field("threads_per_rank", "compute threads of a rank on the CPU; 0: as in the planning process").in(0, kMostThreads),
        &threads_per_rank);
  field(Field("memory_gb", "GB of a rank's device; on the CPU or if unified: GB of the node, shared by its ranks").above(0),
        &memory_gb);
  field(Field("host_memory_gb", "GB of a node's host memory").at_least(0), &host_memory_gb);
  field(Field("process_gb", "GB that a process takes before it loads the model").at_least(0), &process_gb);
  field(Field("matmul_tflops_bf16", "TFLOPS of a large matrix product in bf16").at_least(0), &matmul_tflops_bf16);
  field(Field("matmul_tflops_fp16", "the same in fp16").at_least(0), &matmul_tflops_fp16);
  field(Field("matmul_tflops_fp32", "the same in fp32").at_least(0), &matmul_tflops_fp32);
  field(Field("matmul_tflops_fp64", "the same in fp64").at_least(0), &matmul_tflops_fp64);
  field(Field("matmul_efficiency", "fraction of these that the model's shapes reach").in(0, 1), &matmul_efficiency);
  field(Field("narrow_efficiency", "fraction of these that LoRA's narrow products reach").at_least(0), &narrow_efficiency);
  field(Field("attention_efficiency", "fraction of these that attention reaches, not counting its masked half").at_least(0),
        &attention_efficiency);
  field(Field("memory_gb_s", "GB/s of the device's memory that norms, activations and the optimizer reach").above(0),
        &memory_gb_s);
  field(Field("host_device_gb_s", "GB/s between host and device memory, per direction").at_least(0), &host_device_gb_s);
  field(Field("node_gb_s", "GB/s between two ranks of a node, per direction").at_least(0), &node_gb_s);
  field(Field("node_latency_us", "microseconds of a message inside a node").at_least(0), &node_latency_us);
  field(Field("network_gb_s", "GB/s of a node's network, per direction").at_least(0), &network_gb_s);
  field(Field("network_latency_us", "microseconds of a message between nodes").at_least(0), &network_latency_us);
  field(Field("compute_s_per_gb", "compute seconds that a rank loses per GB received").at_least(0), &compute_s_per_gb);
}

Machine Machine::load(const std::filesystem::path& file) {
  Machine machine;
  std::vector<std::string> names;
  const config::Visit visit = [&](const config::FieldVisitor& field) { machine.visit(field); };
  const auto given = config::read_fields(file, visit);
  visit([&](const Field& field, config::FieldRef) { names.emplace_back(field.name); });
  for (const char* key : {"memory_gb", "memory_gb_s"})
    if (given.count(key) == 0) fail_config("{}: {} is missing", file.string(), key);
  for (const std::string& key : machine.assumed)
    if (std::find(names.begin(), names.end(), key) == names.end())
      fail_config("{}: assumed: '{}' is not a key of a machine description", file.string(), key);
  if (machine.name.empty()) machine.name = file.stem().string();
  return machine;
}

std::string Machine::to_yaml() const {
  Machine copy = *this;
  std::set<std::string, std::less<>> unknown;  // 0 means unknown here; as a value the file would reject it or take it as none
  copy.visit([&](const Field& field, config::FieldRef ref) {
    if (const auto* number = std::get_if<double*>(&ref); number != nullptr && **number == 0.0) unknown.emplace(field.name);
  });
  return config::write_fields([&](const config::FieldVisitor& field) { copy.visit(field); }, unknown);
}

double Machine::matmul_flops(at::ScalarType type) const {
  const auto [tflops, key] = type == at::kBFloat16 ? std::pair{matmul_tflops_bf16, "matmul_tflops_bf16"}
                             : type == at::kHalf   ? std::pair{matmul_tflops_fp16, "matmul_tflops_fp16"}
                             : type == at::kDouble ? std::pair{matmul_tflops_fp64, "matmul_tflops_fp64"}
                                                   : std::pair{matmul_tflops_fp32, "matmul_tflops_fp32"};
  if (tflops == 0.0)
    fail_config(
        "machine '{}': {} is missing, and the run computes in that type: add it to the description (qft bench gemm measures it), "
        "or compute in a type that the machine has{}",
        name, key, type == at::kBFloat16 && matmul_tflops_fp16 > 0 ? " (fp16: true)" : "");
  return tflops * 1e12 * matmul_efficiency;
}

std::int64_t Machine::memory_of_a_rank(std::int64_t ranks) const {
  return static_cast<std::int64_t>(memory_gb * 1e9) / (is_cpu() || unified ? ranks_of_a_node(ranks) : 1);
}

Link link_of(const Machine& m, int ranks, int stride) {
  if (ranks <= 1) return {};
  const auto per_node = static_cast<int>(m.ranks_per_node);
  const bool crosses = static_cast<std::int64_t>(ranks) * stride > per_node;
  const bool inside = stride < per_node;  // some ring neighbours share a node
  const auto require_link = [&](double gb_s, const char* key) {
    if (gb_s == 0.0)
      fail_config("machine '{}': {} is missing, but {} ranks that lie {} apart use that link", m.name, key, ranks, stride);
  };
  if (inside) require_link(m.node_gb_s, "node_gb_s");
  if (!crosses) return {m.node_gb_s * 1e9, m.node_latency_us * 1e-6};
  require_link(m.network_gb_s, "network_gb_s");
  // A ring enters and leaves a node once. As many rings share the network as there are ranks between two members of a ring.
  const double network = m.network_gb_s / std::min(stride, per_node);
  const double slowest = inside ? std::min(network, m.node_gb_s) : network;
  return {slowest * 1e9, std::max(m.network_latency_us, inside ? m.node_latency_us : 0.0) * 1e-6};
}

Machine find_machine(const std::string& asked) {
  const std::size_t name_end = end_of_name(asked);
  Machine machine = Machine::load(machine_file(asked.substr(0, name_end)));
  const config::Visit visit = [&](const config::FieldVisitor& field) { machine.visit(field); };
  std::string changed;
  for (std::size_t at = name_end; at < asked.size();) {
    const std::size_t end = asked.find(',', at + 1);
    const std::string assignment = asked.substr(at + 1, end == asked.npos ? end : end - at - 1);
    config::set_field(assignment, "--machine " + asked, visit);
    changed += (changed.empty() ? "" : ", ") + assignment;
    std::erase(machine.assumed, assignment.substr(0, assignment.find('=')));
    at = end;
  }
  if (!changed.empty()) machine.name += fmt::format(" ({} by the command line)", changed);
  return machine;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& [name, file] : described_machines()) names.push_back(name);
  return names;
}

std::string list_machines() {
  const auto all = described_machines();
  std::size_t width = 0;
  for (const auto& [name, file] : all) width = std::max(width, name.size());
  std::string text;
  const auto words = [](const fs::path& file) {
    try {
      return Machine::load(file).name;
    } catch (const Error& error) {
      return fmt::format("error: {}", error.what());
    }
  };
  for (const auto& [name, file] : all) text += fmt::format("{:<{}}  {}\n", name, width, words(file));
  return text;
}

}  // namespace qft::plan
