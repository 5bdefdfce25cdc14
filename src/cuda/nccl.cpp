// NCCL as the collective library for CUDA devices. Linked with LibTorch's libnccl; at run time, a libnccl in the user's search
// path takes precedence (device/backends.cpp loads that one first).
#include "qft/comm/collective_library.h"
#include "qft/core/error.h"

#include <cstring>
#include <dlfcn.h>

#include "parts.h"
#include <fmt/format.h>
#include <nccl.h>

namespace qft::cuda {
namespace {

using comm::CollectiveLibrary;
using comm::ReduceOp;
using Result = CollectiveLibrary::Result;

Result result_of(ncclResult_t result) {
  if (result == ncclSuccess) return Result::ok;
  return result == ncclInProgress ? Result::in_progress : Result::failed;
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::i8:
      return ncclInt8;
    case DType::u8:
    case DType::boolean:
      return ncclUint8;
    case DType::i16:
      break;
  }
  throw Error("NCCL cannot reduce I16: use I32");
}

ncclRedOp_t op_of(ReduceOp op) {
  constexpr ncclRedOp_t kOps[] = {ncclSum, ncclProd, ncclMax, ncclMin};  // in the order of ReduceOp
  return kOps[static_cast<std::size_t>(op)];
}

ncclComm_t comm_of(CollectiveLibrary::Group group) {
  return static_cast<ncclComm_t>(group);
}
cudaStream_t stream_of(CollectiveLibrary::Stream stream) {
  return static_cast<cudaStream_t>(stream);
}

/// Channel buffers of a group: an assumption, not measured.
constexpr std::int64_t kGroupBytes = std::int64_t{256} << 20;

class Nccl final : public CollectiveLibrary {
 public:
  std::string version() const override {
    int number = 0;
    ncclGetVersion(&number);
    Dl_info info{};
    const bool found = dladdr(reinterpret_cast<const void*>(&ncclGetVersion), &info) != 0 && info.dli_fname != nullptr;
    return fmt::format("NCCL {}.{}.{}, '{}'", number / 10000, number % 10000 / 100, number % 100,
                       found ? info.dli_fname : "unknown file");
  }
  std::string obstacle() const override {
    int number = 0;
    ncclGetVersion(&number);
    if (number / 10000 == NCCL_MAJOR && number >= NCCL_VERSION_CODE) return {};
    return fmt::format(
        "{} does not fit the {}.{}.{} that qft was built with (older, or another major version): remove the wrong libnccl from "
        "LD_LIBRARY_PATH",
        version(), NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  }
  std::string advice() const override { return "NCCL_DEBUG=INFO shows NCCL's log; NCCL_SOCKET_IFNAME selects the network"; }
  std::string last_error(Group group) const override {
    const char* text = ncclGetLastError(comm_of(group));
    return text == nullptr || *text == '\0' ? "no detail" : text;
  }

  std::int64_t group_bytes(int ranks) const override { return ranks > 1 ? kGroupBytes : 0; }

  Result unique_id(UniqueId& id) const override {
    ncclUniqueId made{};
    static_assert(sizeof made.internal == std::tuple_size_v<UniqueId>);
    const auto result = ncclGetUniqueId(&made);
    std::memcpy(id.data(), made.internal, id.size());
    return result_of(result);
  }
  Result init(Group& group, int size, const UniqueId& id, int rank) const override {
    ncclUniqueId given{};
    std::memcpy(given.internal, id.data(), id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    const auto result = ncclCommInitRankConfig(&comm, size, given, rank, &config);
    group = comm;
    return result_of(result);
  }
  Result state(Group group) const override {
    ncclResult_t state = ncclSuccess;
    const auto asked = ncclCommGetAsyncError(comm_of(group), &state);
    return result_of(asked == ncclSuccess ? state : asked);
  }
  Result finalize(Group group) const override { return result_of(ncclCommFinalize(comm_of(group))); }
  void destroy(Group group) const override { ncclCommDestroy(comm_of(group)); }
  void abort(Group group) const override { ncclCommAbort(comm_of(group)); }

  Result group_start() const override { return result_of(ncclGroupStart()); }
  Result group_end() const override { return result_of(ncclGroupEnd()); }

  Result all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, Group group, Stream stream) const override {
    return result_of(ncclAllReduce(data, data, count, type_of(dtype), op_of(op), comm_of(group), stream_of(stream)));
  }
  Result reduce(const void* send, void* recv, std::size_t count, DType dtype, ReduceOp op, int root, Group group,
                Stream stream) const override {
    return result_of(ncclReduce(send, recv, count, type_of(dtype), op_of(op), root, comm_of(group), stream_of(stream)));
  }
  Result reduce_scatter(const void* send, void* recv, std::size_t count, DType dtype, ReduceOp op, Group group,
                        Stream stream) const override {
    return result_of(ncclReduceScatter(send, recv, count, type_of(dtype), op_of(op), comm_of(group), stream_of(stream)));
  }
  Result all_gather(const void* send, void* recv, std::size_t bytes, Group group, Stream stream) const override {
    return result_of(ncclAllGather(send, recv, bytes, ncclUint8, comm_of(group), stream_of(stream)));
  }
  Result broadcast(const void* send, void* recv, std::size_t bytes, int root, Group group, Stream stream) const override {
    return result_of(ncclBroadcast(send, recv, bytes, ncclUint8, root, comm_of(group), stream_of(stream)));
  }
  Result send(const void* data, std::size_t bytes, int peer, Group group, Stream stream) const override {
    return result_of(ncclSend(data, bytes, ncclUint8, peer, comm_of(group), stream_of(stream)));
  }
  Result recv(void* data, std::size_t bytes, int peer, Group group, Stream stream) const override {
    return result_of(ncclRecv(data, bytes, ncclUint8, peer, comm_of(group), stream_of(stream)));
  }
};

}  // namespace

const void* comm_part() {
  static const Nccl nccl;
  return static_cast<const CollectiveLibrary*>(&nccl);
}

}  // namespace qft::cuda
