// A preloaded library that injects a fault at a chosen MPI collective. QFT_FAULT is RANK:ACTION:N: before the N-th call on that
// rank (from 1) the call is skipped, or the rank stops (SIGSTOP), dies (SIGKILL) or sleeps forever. Nobody waits for a rank that
// skips the receiving side of a broadcast, so there the next call is skipped instead. QFT_FAULT_COUNT names a file that receives
// the number of calls at the end. RANK:full:N gives LibTorch no more host memory once the rank has made (odd N) or renamed (even
// N) its ((N + 1) / 2)-th directory of an unfinished checkpoint: N = 1 is during the first save, 2 is after its commit.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mpi.h>

namespace {

int calls = 0, saves = 0;

/// QFT_FAULT's fault for this rank.
struct Fault {
  char action[16] = {};
  int when = 0;
};
Fault fault_of_this_rank() {
  const char* fault = std::getenv("QFT_FAULT");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  Fault f;
  int who = -1;
  if (fault == nullptr || rank == nullptr || std::sscanf(fault, "%d:%15[^:]:%d", &who, f.action, &f.when) != 3) return {};
  return who == std::atoi(rank) ? f : Fault{};
}

/// Counts directories of unfinished checkpoints that were made or renamed.
void note_save(const char* path, int result) {
  saves += result == 0 && std::strstr(path, "tmp-checkpoint-") != nullptr;
}

bool memory_is_full() {
  static const Fault fault = fault_of_this_rank();
  return std::strcmp(fault.action, "full") == 0 && saves >= fault.when;
}

template <class Function>
Function next_of(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool is_of_libtorch(const void* caller) {
  Dl_info info{};
  return dladdr(caller, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libc10") != nullptr;
}

void write_count() {
  const char* path = std::getenv("QFT_FAULT_COUNT");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (path == nullptr || rank == nullptr || std::strcmp(rank, "0") != 0) return;
  if (std::FILE* file = std::fopen(path, "w")) {
    std::fprintf(file, "%d\n", calls);
    std::fclose(file);
  }
}

/// Returns true if the call must be skipped. `waited_for`: other ranks wait for this one in the call.
bool harm(bool waited_for = true) {
  static bool due = false;
  if (++calls == 1) std::at_quick_exit(write_count);  // programs end with quick_exit
  const auto [action, when] = fault_of_this_rank();
  if (when == 0 || std::strcmp(action, "full") == 0) return false;
  due |= when == calls;
  const bool skips = std::strcmp(action, "skip") == 0;
  if (!due || (skips && !waited_for)) return false;
  due = false;
  if (std::strcmp(action, "stop") == 0) std::raise(SIGSTOP);
  if (std::strcmp(action, "kill") == 0) std::raise(SIGKILL);
  while (std::strcmp(action, "sleep") == 0) sleep(1000);
  return skips;
}

}  // namespace

extern "C" {

int mkdir(const char* path, mode_t mode) noexcept {
  const int result = next_of<int (*)(const char*, mode_t)>("mkdir")(path, mode);
  note_save(path, result);
  return result;
}
int rename(const char* from, const char* to) noexcept {
  const int result = next_of<int (*)(const char*, const char*)>("rename")(from, to);
  note_save(from, result);
  return result;
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  static const auto next = next_of<int (*)(void**, size_t, size_t)>("posix_memalign");
  if (memory_is_full() && is_of_libtorch(__builtin_return_address(0))) return ENOMEM;
  return next(memory, alignment, bytes);
}

int MPI_Allreduce(const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return harm() ? MPI_SUCCESS : PMPI_Allreduce(send, recv, count, type, op, comm);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return harm(rank == root) ? MPI_SUCCESS : PMPI_Bcast(data, count, type, root, comm);
}
int MPI_Allgatherv(const void* send, int send_count, MPI_Datatype send_type, void* recv, const int* counts, const int* offsets,
                   MPI_Datatype recv_type, MPI_Comm comm) {
  return harm() ? MPI_SUCCESS : PMPI_Allgatherv(send, send_count, send_type, recv, counts, offsets, recv_type, comm);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  if (!harm()) return PMPI_Ibarrier(comm, request);
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}
}
