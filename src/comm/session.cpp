#include "qft/comm/session.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/program.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/threads.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include "mpi_support.h"
#include "progress.h"
#include <fmt/format.h>
#include <mpi.h>

namespace qft::comm {
namespace {

Session* the_session = nullptr;

std::string own_hostname() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// With a launcher whose processes MPI does not connect (srun --mpi=pmi2, torchrun), n runs would start that each believe they are
// alone and write the same output.
void require_one_job(int world_size) {
  if (world_size > 1) return;
  const auto launched = launched_processes();
  if (!launched) return;
  fail(
      "the environment's {} says {} processes, but MPI sees a separate job of one rank in each: start with mpirun -np {}, or "
      "with srun --mpi=pmix (srun --mpi=list shows what this SLURM offers); unset {} to run a single process",
      launched->variable, launched->count, launched->count, launched->variable);
}

// A single rank without a launcher needs neither the daemon that Open MPI forks for it nor a search for networks; skipping them
// saves 0.3 s. It does not need the session folder either, which all such processes of a user share: two processes that create it
// at once can fail. The user's own settings take precedence; other MPIs ignore these.
void start_alone_quickly() {
  for (const char* launched : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE"}) {
    if (std::getenv(launched) != nullptr) return;
  }
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
  setenv("OMPI_MCA_pml", "ob1", 0);
  setenv("OMPI_MCA_btl", "self", 0);
}

/// Returns why this process uses no device of `kind`.
std::string reason_against(const std::string& kind) {
  const device::BackendEntry* entry = device::find_backend_entry(kind);
  return entry == nullptr ? "unknown here" : entry->why;
}

/// Returns the kind that all ranks take.
std::string agreed_kind(Session& session, const device::DeviceWish& wish) {
  std::string mine;
  agreed(session.world(), [&] { mine = device::kind_for(wish); });
  const auto kinds = all_gather_strings(session.world(), mine);
  const auto other = std::ranges::find_if(kinds, [](const std::string& kind) { return kind != "cpu"; });
  if (other == kinds.end()) return mine;
  // With `auto` on differing nodes, the ranks without the device report why.
  std::string against;
  if (mine != *other)
    against = fmt::format("{} cannot use {}, which other ranks use: {}; repair that node, leave it out, or set use_cpu: true",
                          session.hostname(), *other, reason_against(*other));
  all_agree(session.world(), against, kExitUsage);
  return mine;
}

std::vector<std::string> uuids_of(const std::string& kind) {
  const device::BackendEntry& entry = *device::find_backend_entry(kind);
  std::vector<std::string> uuids;
  for (int i = 0; i < entry.count; ++i) uuids.push_back(entry.backend->facts(i).uuid);
  return uuids;
}

/// Returns how many ranks of the node take this rank's device.
int sharers_of(Session& session, const std::string& uuid) {
  const auto taken = all_gather_strings(session.node_group(), uuid);
  return static_cast<int>(std::ranges::count(taken, uuid));
}

}  // namespace

Session::Session(int& argc, char**& argv, const Guard& guard) {
  QFT_ASSERT(the_session == nullptr, "a second Session in one process");
  start_alone_quickly();
  int provided = MPI_THREAD_SINGLE;
  mpi_check(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  try {
    world_ = make_mpi_communicator(MPI_COMM_WORLD, "world");
    rank_ = world_->rank();
    size_ = world_->size();
    log::init({.rank = rank_, .world_size = size_});
    require_one_job(size_);
    hostname_ = own_hostname();
    if (guard) guard_ = guard(*world_, hostname_);
    find_neighbours();
  } catch (...) {
    world_.reset();
    node_group_.reset();
    MPI_Finalize();
    throw;
  }
  if (provided == MPI_THREAD_MULTIPLE) {
    if (size_ > 1) start_progress_thread();
  } else if (rank_ == 0) {
    log::warn("this MPI grants thread level {} of {} (MULTIPLE): transfers will not overlap with computation", provided,
              static_cast<int>(MPI_THREAD_MULTIPLE));
  }
  the_session = this;
}

void Session::find_neighbours() {
  MPI_Comm node = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  node_group_ = make_mpi_communicator(node, "node");
  MPI_Comm_free(&node);
  local_rank_ = node_group_->rank();
  local_size_ = node_group_->size();

  auto leaders = all_gather_value(*world_, broadcast_value(*node_group_, rank_));
  const int own = leaders[static_cast<std::size_t>(rank_)];
  std::sort(leaders.begin(), leaders.end());
  leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
  node_count_ = static_cast<int>(leaders.size());
  node_ = static_cast<int>(std::lower_bound(leaders.begin(), leaders.end(), own) - leaders.begin());

  // Formats a CPU mask as text of '0' and '1', one per CPU.
  const auto mask_of = [](const std::vector<int>& cpus) {
    std::string mask(cpus.empty() ? 0 : static_cast<std::size_t>(cpus.back()) + 1, '0');
    for (const int cpu : cpus) mask[static_cast<std::size_t>(cpu)] = '1';
    return mask;
  };
  const auto mine = mask_of(device::cpu_share().cpus);
  core_sharers_ = 0;
  for (const auto& other : all_gather_strings(*node_group_, mine)) {
    bool shared = false;
    for (std::size_t i = 0; i < std::min(mine.size(), other.size()); ++i) shared |= mine[i] == '1' && other[i] == '1';
    if (shared) ++core_sharers_;
  }
  core_sharers_ = std::max(core_sharers_, 1);
}

Session::~Session() {
  the_session = nullptr;
  stop_progress_thread();
  node_group_.reset();
  world_.reset();
  MPI_Finalize();
  guard_.reset();
}

Session& Session::current() {
  QFT_ASSERT(the_session != nullptr, "no Session is open: main() must use run_main()");
  return *the_session;
}

bool Session::exists() {
  return the_session != nullptr;
}

std::string Session::library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string_view all(text.data(), static_cast<std::size_t>(length));
  return std::string(all.substr(0, all.find_first_of(",\n")));
}

std::string format_ranks(std::span<const int> ranks) {
  return device::format_cpu_list({ranks.begin(), ranks.end()});
}

c10::Device choose_device(Session& session, std::string_view text) {
  device::DeviceWish wish;
  agreed(session.world(), [&] { wish = device::parse_device(text); });
  const std::string kind = agreed_kind(session, wish);
  if (session.rank() == 0)
    for (const std::string& text : device::backend_warnings()) log::warn("{}", text);
  if (kind == "cpu") return c10::kCPU;
  const auto uuids = uuids_of(kind);
  const int count = static_cast<int>(uuids.size());
  const int index = wish.index.value_or(session.local_rank() % count);
  const std::string& mine = uuids[static_cast<std::size_t>(index)];
  const int sharers = sharers_of(session, mine);
  std::string refusal = device::obstacle_of(kind, index);
  const auto type = device::find_backend_entry(kind)->backend->type();
  const device::DeviceFacts& facts = device::facts_of(c10::Device(type, static_cast<c10::DeviceIndex>(index)));
  if (!refusal.empty())
    refusal = fmt::format("{}: {}", session.hostname(), refusal);
  else if (sharers > 1 && !facts.shareable)
    refusal = fmt::format("{}: {} of {} ranks would share one {} device ({}); this rank sees {}: start one rank per device{}{}",
                          session.hostname(), sharers, session.local_size(), kind, mine, count,
                          facts.sharing.empty() ? "" : ", or ", facts.sharing);
  all_agree(session.world(), refusal, kExitUsage);
  const c10::Device device = device::use_device(kind, index);
  session.set_device_sharers(sharers);
  return device;
}

}  // namespace qft::comm
