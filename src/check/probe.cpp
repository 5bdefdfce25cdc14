#include "probe.h"

#include "qft/core/error.h"

#include <fmt/ranges.h>

namespace qft::check {
namespace {

constexpr const char* kSameInstallation =
    "run the same installation on every node: a shared file system, or the same bundle copied to each";

// In output order: the run file comes first, because most faults are there. Probes that send much come after those that explain
// why a network breaks.
constexpr Probe kProbes[] = {
    {"network", "path MTU", gather_path_mtu, judge_path_mtu, "",
     "set the same MTU on the interfaces and on every switch port between them (ip link set IF mtu N); until then "
     "ip link set IF mtu 1500 on all nodes"},

    {"files", "files", gather_files, judge_files, "",
     "put it on a shared file system, or copy it to every node (rsync -aL also follows links), and check the key in the run "
     "file"},
    {"files", "output", gather_outputs, judge_writable, "", "choose a folder that every node can write, or free space there"},
    {"files", "output sharing", gather_outputs, judge_shared, "",
     "checkpoints are written per node: to resume on other nodes copy them, or use a shared file system"},

    {"run", "layout", gather_run, judge_layout, "", ""},
    {"run", "run", gather_run, judge_run, "", "correct the run file, or the files that it names"},
    {"run", "space", gather_space, judge_space, "",
     "set save_total_limit (or save_only_model), save less often, or choose another output_dir"},

    {"software", "host names", gather_software, judge_hosts, "", "give each node its own name (hostnamectl set-hostname)"},
    {"software", "qft version", gather_software, judge_equal, "qft", kSameInstallation},
    {"software", "build", gather_software, judge_equal, "build", kSameInstallation},
    {"software", "MPI", gather_software, judge_equal, "mpi", "load the same MPI module on every node and use its own mpirun"},
    {"software", "LibTorch", gather_software, judge_equal, "torch", kSameInstallation},
    {"software", "device", gather_software, judge_device, "",
     "repair or leave out the nodes that differ; use_cpu: true trains on the CPU everywhere"},
    {"software", "CUDA", gather_software, judge_equal, "cuda", kSameInstallation},
    {"software", "NCCL", gather_software, judge_equal, "nccl",
     "nodes load different NCCLs: compare LD_LIBRARY_PATH, and export the same on all (mpirun -x LD_LIBRARY_PATH)"},
    {"software", "CPU model", gather_software, judge_alike, "cpu",
     "mixed nodes run at the pace of the slowest, and results may differ in the last bits: ask for one kind (sbatch "
     "--constraint)"},
    {"software", "libraries", gather_software, judge_libraries, "",
     "nodes load different files: fine if they are copies, else compare LD_LIBRARY_PATH on each node"},
    {"software", "environment", gather_software, judge_variables, "",
     "export the same value on all nodes (mpirun -x NAME, sbatch --export=ALL)"},

    {"host", "memory", gather_host, judge_memory, "",
     "ask for more memory per node (sbatch --mem), start fewer ranks per node, or end left-over processes"},
    {"host", "binding", gather_host, judge_binding, "",
     "bind each rank to its own cores (mpirun --map-by, srun --cpus-per-task)"},
    {"host", "oversubscription", gather_host, judge_oversubscription, "",
     "start fewer ranks per node, or set OMP_NUM_THREADS to the node's cores divided by its ranks"},
    {"host", "load", gather_host, judge_load, "",
     "another program computes on that node: find it with top, then end it or leave the node out"},
    {"host", "locked memory", gather_host, judge_locked_memory, "",
     "set 'ulimit -l unlimited' for the job: /etc/security/limits.conf, and LimitMEMLOCK=infinity of the batch system's daemon"},
    {"host", "open files", gather_host, judge_open_files, "",
     "raise it: 'ulimit -n 65536' in the job script, /etc/security/limits.conf, or LimitNOFILE of the batch system's daemon"},
    {"host", "stack", gather_host, judge_stack, "", "set 'ulimit -s 8192' or more in the job script"},
    {"host", "/dev/shm", gather_host, judge_shared_memory, "",
     "make it larger (mount -o remount,size=8G /dev/shm; in a container --shm-size=8g or --ipc=host), or remove left-over files"},
    {"host", "huge pages", gather_host, judge_huge_pages, "",
     "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root, on every node)"},

    {"gpu", "GPU driver", gather_gpus, judge_driver, "", "install the same driver on every node, or leave the node out"},
    {"gpu", "GPUs", gather_gpus, judge_gpus, "", "see nvidia-smi and dmesg (Xid) on that node; a reboot often brings a GPU back"},
    {"gpu", "GPU memory", gather_gpus, judge_gpu_memory, "",
     "end the process (kill PID; a zombie's parent, or the container that it is in), or leave the node out"},
    {"gpu", "GPU errors", gather_gpus, judge_gpu_errors, "",
     "reset the GPU (nvidia-smi --gpu-reset, or a reboot); if errors come back, have it replaced; until then leave the node out"},
    {"gpu", "GPU clocks", gather_gpus, judge_gpu_clocks, "",
     "check cooling and power of that node (nvidia-smi -q -d PERFORMANCE), or leave it out: all wait for the slowest GPU"},
    {"gpu", "GPU peers", gather_gpus, judge_gpu_peers, "",
     "switch off ACS in the BIOS and the IOMMU (nvidia-smi topo -p2p r shows pairs); otherwise copies go through host memory"},
    {"gpu", "NVLink", gather_gpus, judge_gpu_links, "",
     "nvidia-smi nvlink -s shows them; with NVSwitch the service nvidia-fabricmanager must run, in the same version as the "
     "driver"},
    {"gpu", "PCIe", gather_gpus, judge_gpu_lanes, "",
     "reseat the card, or leave the node out: copies to it are slower in proportion"},
    {"gpu", "unified memory", gather_gpus, judge_unified_memory, "", ""},

    {"network", "interface", gather_links, judge_interfaces, "",
     "bring the interface up with an address in the other nodes' network, or name the network that all nodes share: "
     "mpirun --mca btl_tcp_if_include NETWORK/BITS"},
    {"network", "addresses", gather_links, judge_addresses, "",
     "MPI may try to reach other nodes there: mpirun --mca btl_tcp_if_exclude lo,IF (or btl_tcp_if_include of the real network)"},
    {"network", "link speed", gather_links, judge_link_speed, "",
     "check cable and switch port (ethtool IF), or name a faster network (mpirun --mca btl_tcp_if_include); if there is "
     "none, say so with --machine NAME or FILE"},
    {"network", "MTU", gather_links, judge_mtu, "",
     "set the same on all nodes and switch ports: ip link set IF mtu 9000, or 1500 if a switch does not support it"},
    {"network", "NCCL interface", gather_links, judge_nccl_interface, "",
     "set NCCL_SOCKET_IFNAME to an interface that exists on every node (a prefix such as 'eth' fits several names)"},
    {"network", "RDMA ports", gather_links, judge_rdma_ports, "",
     "see the ports with ibstat; check cable and subnet manager, or leave the node out"},
    {"network", "GPUDirect", gather_links, judge_gpu_direct, "",
     "modprobe nvidia_peermem on every node, or use NVIDIA's open kernel modules (DMA-BUF); until then NCCL copies through host "
     "memory"},
    {"network", "clocks", gather_clock, judge_clock, "", "run chronyd or ntpd on every node (chronyc tracking)"},
    {"network", "route", gather_pairs, judge_route, "",
     "name the faster network: mpirun --mca btl_tcp_if_include NETWORK/BITS, UCX_NET_DEVICES, NCCL_SOCKET_IFNAME"},
    {"network", "RDMA", gather_pairs, judge_rdma_use, "",
     "let MPI use RDMA: an MPI with UCX (mpirun --mca pml ucx; UCX_NET_DEVICES=mlx5_0:1), without 'btl tcp' or '^ucx' in its "
     "settings"},
    {"network", "pairs of nodes", gather_pairs, judge_pairs, "",
     "check cable, switch port and negotiated speed of these nodes (ethtool IF, ibstat, ip -s link), or leave the node out"},

    {"collectives", "values", gather_collectives, judge_values, "",
     "the communication library or the network changes data: try another transport (mpirun --mca pml ob1 --mca btl tcp,self; "
     "NCCL_P2P_DISABLE=1)"},
    {"collectives", "latency", gather_collectives, judge_latency, "",
     "look for other load on nodes and network, and check that ranks do not share cores (mpirun --report-bindings)"},
    {"collectives", "all-reduce", gather_collectives, judge_all_reduce, "",
     "check which network MPI and NCCL use (mpirun --mca btl_base_verbose 30; UCX_NET_DEVICES; NCCL_DEBUG=INFO)"},
    {"compute", "self-test", gather_selftest, judge_selftest, "", "run qft selftest on that node alone: it explains what fails"},
};

constexpr std::size_t kMostNames = 12;

std::string text_of(const Json& value) {
  if (value.is_null() || value == "") return "nothing";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void compare(const Facts& facts, Judgement& out, void (Judgement::*tell)(std::string, std::span<const int>, std::string)) {
  const Groups groups = group(facts.all(), [&](int rank) { return text_of(facts.at(rank, out.probe().fact)); });
  if (groups.size() == 1)
    out.fine(groups.front().first);
  else
    (out.*tell)(describe(facts, groups), minority(groups), {});
}

}  // namespace

std::span<const Probe> probes() {
  return kProbes;
}

std::string describe_probes() {
  std::string text = "| group | probe | what to do if it is not fine |\n|---|---|---|\n";
  for (const Probe& p : kProbes) text += fmt::format("| {} | {} | {} |\n", p.group, p.name, p.remedy);
  return text;
}

int Facts::nodes() const {
  int last = -1;
  for (const Place& place : places) last = std::max(last, place.node);
  return last + 1;
}

std::vector<int> Facts::all() const {
  std::vector<int> ranks(places.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  return ranks;
}

std::vector<int> Facts::leaders() const {
  std::vector<int> ranks;
  for (const int rank : all())
    if (places[static_cast<std::size_t>(rank)].local_rank == 0) ranks.push_back(rank);
  return ranks;
}

std::string Facts::where(std::span<const int> ranks) const {
  std::map<int, int> sizes, chosen;
  for (const Place& place : places) ++sizes[place.node];
  std::vector<std::string> names;
  std::set<int> leaders_only;
  for (const int rank : ranks) ++chosen[places.at(static_cast<std::size_t>(rank)).node];
  std::set<int> told;
  for (const int rank : ranks) {
    const Place& place = places[static_cast<std::size_t>(rank)];
    // A first local rank stands for its node.
    const bool whole = chosen[place.node] == sizes[place.node] || (chosen[place.node] == 1 && place.local_rank == 0);
    if (!whole)
      names.push_back(fmt::format("rank {} ({})", rank, place.host));
    else if (told.insert(place.node).second)
      names.push_back(place.host);
  }
  if (nodes() > 1 && static_cast<int>(told.size()) == nodes()) return "all nodes";
  const std::size_t more = names.size() > kMostNames ? names.size() - kMostNames : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

std::vector<std::string> Facts::hosts(std::span<const int> ranks) const {
  std::vector<std::string> names;
  for (const int rank : ranks) {
    const std::string& host = places.at(static_cast<std::size_t>(rank)).host;
    if (std::find(names.begin(), names.end(), host) == names.end()) names.push_back(host);
  }
  return names;
}

void Judgement::add(Level level, std::string text, std::span<const int> ranks, std::string remedy) {
  if (remedy.empty() && level != Level::fine) remedy = probe_.remedy;
  auto hosts = facts_.hosts(ranks);
  if (hosts.size() == facts_.hosts(facts_.all()).size()) hosts.clear();
  verdicts_.push_back({level, probe_.name, std::move(text), std::move(remedy), std::move(hosts)});
}

void Judgement::fine(std::string text) {
  add(Level::fine, std::move(text), {}, {});
}
void Judgement::warn(std::string text, std::span<const int> ranks, std::string remedy) {
  add(Level::warning, std::move(text), ranks, std::move(remedy));
}
void Judgement::fail(std::string text, std::span<const int> ranks, std::string remedy) {
  add(Level::problem, std::move(text), ranks, std::move(remedy));
}

std::string describe(const Facts& facts, const Groups& groups) {
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : groups) parts.push_back(fmt::format("{} on {}", value, facts.where(ranks)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<int> minority(const Groups& groups) {
  std::size_t all = 0;
  for (const auto& [value, ranks] : groups) all += ranks.size();
  std::vector<int> others;
  bool majority = false;
  for (const auto& [value, ranks] : groups) {
    if (2 * ranks.size() > all)
      majority = true;
    else
      others.insert(others.end(), ranks.begin(), ranks.end());
  }
  std::sort(others.begin(), others.end());
  return majority ? others : std::vector<int>{};
}

void judge_equal(const Facts& facts, Judgement& out) {
  compare(facts, out, &Judgement::fail);
}
void judge_alike(const Facts& facts, Judgement& out) {
  compare(facts, out, &Judgement::warn);
}

}  // namespace qft::check
