// Preloaded into a rank, does harm at a chosen collective of MPI. QFT_FAULT is RANK:ACTION:N; the N-th call on that rank
// (from 1) is skipped, or the rank stops (SIGSTOP), dies (SIGKILL) or sleeps for ever before it. Nobody waits for a rank that
// does not take what another one broadcasts: there the next call is skipped. QFT_FAULT_COUNT names a file that gets the number
// of calls at the end.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include <mpi.h>

namespace {

int calls = 0;

void write_count() {
  const char* path = std::getenv("QFT_FAULT_COUNT");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (path == nullptr || rank == nullptr || std::strcmp(rank, "0") != 0) return;
  if (std::FILE* file = std::fopen(path, "w")) {
    std::fprintf(file, "%d\n", calls);
    std::fclose(file);
  }
}

/// True where the call is to be left out. `waited_for`: other ranks wait for this one in it.
bool harm(bool waited_for = true) {
  static bool due = false;
  if (++calls == 1) std::atexit(write_count);
  const char* fault = std::getenv("QFT_FAULT");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  char action[16] = {};
  int who = -1, when = 0;
  if (fault == nullptr || rank == nullptr || std::sscanf(fault, "%d:%15[^:]:%d", &who, action, &when) != 3) return false;
  if (who != std::atoi(rank)) return false;
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

int MPI_Allreduce(const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return harm() ? MPI_SUCCESS : PMPI_Allreduce(send, recv, count, type, op, comm);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return harm(rank == root) ? MPI_SUCCESS : PMPI_Bcast(data, count, type, root, comm);
}
int MPI_Allgatherv(const void* send, int send_count, MPI_Datatype send_type, void* recv, const int* counts,
                   const int* offsets, MPI_Datatype recv_type, MPI_Comm comm) {
  return harm() ? MPI_SUCCESS : PMPI_Allgatherv(send, send_count, send_type, recv, counts, offsets, recv_type, comm);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  if (!harm()) return PMPI_Ibarrier(comm, request);
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}
}
