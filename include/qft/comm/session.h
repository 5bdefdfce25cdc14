// The process as one rank of a job: starts and ends MPI, and knows its neighbours.
#pragma once

#include "qft/comm/communicator.h"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <c10/core/Device.h>

namespace qft::comm {

/// RAII over MPI_Init_thread(MPI_THREAD_MULTIPLE) and MPI_Finalize; one per process. Works under mpirun, under srun, and without
/// a launcher (one rank). MULTIPLE, because a progress thread drives non-blocking operations while the main thread may be in MPI
/// too. An MPI that grants less works, without that thread.
class Session {
 public:
  /// Called with all ranks and this rank's host name before anything else communicates. Its result lives until MPI has ended.
  using Guard = std::function<std::shared_ptr<void>(Communicator& world, const std::string& host)>;
  /// Throws Error if a launcher started several tasks that MPI does not see as one job.
  Session(int& argc, char**& argv, const Guard& guard = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// The session of this process; throws Error if there is none.
  static Session& current();
  static bool exists();

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  ///< among the ranks of this node
  int local_size() const { return local_size_; }
  int node() const { return node_; }  ///< 0, 1, ... in the order of the nodes' lowest ranks
  int node_count() const { return node_count_; }
  const std::string& hostname() const { return hostname_; }
  /// Ranks of this node that may run on one of this rank's cores, including itself; 1 if each rank is bound to its own cores.
  int core_sharers() const { return core_sharers_; }
  /// Ranks of this node that share this rank's memory on `device`, including itself; on the CPU all ranks of the node.
  int sharers_of(c10::Device device) const { return device.is_cpu() ? local_size_ : device_sharers_; }
  /// Stores the number of sharers that choose_device() found.
  void set_device_sharers(int ranks) { device_sharers_ = ranks; }

  /// All ranks, for host memory ("self" if there is one rank, else MPI).
  Communicator& world() { return *world_; }
  /// The ranks of this node.
  Communicator& node_group() { return *node_group_; }

  /// Returns the library's own version text: "Open MPI v4.1.4 ...".
  static std::string library_version();

 private:
  void find_neighbours();
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, node_ = 0, node_count_ = 1, core_sharers_ = 1;
  int device_sharers_ = 1;
  std::string hostname_;
  std::shared_ptr<void> guard_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> node_group_;
};

/// Formats ascending ranks: "0-3,5" for {0,1,2,3,5}.
std::string format_ranks(std::span<const int> ranks);

/// Chooses this rank's device for `wish` (device::parse_device) and makes it current. Collective. All ranks take one kind: if a
/// rank cannot use its wish, or the kind that others use, all ranks throw ConfigError with node and reason. Ranks of a node take
/// their visible devices in the order of their local ranks; a task to which the launcher shows a single device takes that one. If
/// two ranks would share a device, all ranks throw ConfigError, unless the device may be shared (DeviceFacts::shareable).
/// Afterwards Session::sharers_of(device) returns the number of sharers.
c10::Device choose_device(Session& session, std::string_view wish);

}  // namespace qft::comm
