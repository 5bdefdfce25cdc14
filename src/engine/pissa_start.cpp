#include "pissa_start.h"

#include "qft/comm/exchange.h"
#include "qft/core/log.h"
#include "qft/core/random_id.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"
#include "qft/model/load.h"
#include "qft/model/pissa.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace qft::engine {
namespace {

namespace fs = std::filesystem;

/// Copies rank 0's file `from` to `to` on all other ranks. Collective.
void copy_to_others(const fs::path& from, const fs::path& to, comm::Communicator& comm) {
  constexpr std::uint64_t kPiece = 4 << 20;
  std::optional<io::File> source;
  std::unique_ptr<io::WritableFile> copy;
  std::int64_t size = 0;
  comm::agreed(comm, [&] {
    if (comm.rank() == 0)
      size = static_cast<std::int64_t>(source.emplace(io::File::open_read(from)).size());
    else
      copy = io::posix_storage().create(to);
  });
  const auto bytes = static_cast<std::uint64_t>(comm::broadcast_value(comm, size));
  std::exception_ptr failure;  // keep broadcasting after a failure: the other ranks wait for each piece
  std::vector<char> piece(std::min(bytes, kPiece));
  for (std::uint64_t begin = 0; begin < bytes; begin += kPiece) {
    const std::uint64_t count = std::min(kPiece, bytes - begin);
    try {
      if (source && !failure) source->pread(begin, piece.data(), count);
    } catch (...) {
      failure = std::current_exception();
    }
    comm.host().broadcast(piece.data(), count, DType::u8, 0);
    try {
      if (copy && !failure) copy->append(piece.data(), count);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  comm::agreed(comm, [&] {
    if (failure) std::rethrow_exception(failure);
    if (copy) copy->close();
  });
}

}  // namespace

PissaStart::TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  if (!file.empty()) fs::remove(file, ignored);
}

PissaStart::PissaStart(const model::ModelSpec& spec, const io::ModelFiles& files, std::uint64_t seed, const fs::path& resumed,
                       comm::Communicator& comm) {
  const bool first = comm.rank() == 0;
  comm::agreed(comm, [&] {
    const fs::path own = fs::temp_directory_path() / fmt::format("qft-{}-{}", random_hex(), model::kPissaInitFile);
    file_ = first && !resumed.empty() ? resumed / model::kPissaInitFile : own;
    if (file_ == own) temporary_.file = own;
    if (first && !resumed.empty()) model::open_initial_factors(file_);
  });
  if (resumed.empty()) {
    if (first)
      log::info("PiSSA: decomposing the weights, {}", spec.adapter.lora.pissa->iterations < 0
                                                          ? std::string("exactly (pissa_iter: 16 is faster)")
                                                          : fmt::format("by {} iterations", spec.adapter.lora.pissa->iterations));
    model::write_initial_factors(spec, files, seed, io::posix_storage(), file_, comm);
  }
  copy_to_others(file_, file_, comm);
}

std::unique_ptr<io::TensorFile> PissaStart::open() const {
  return model::open_initial_factors(file_);
}

}  // namespace qft::engine
