#include "qft/checkpoint/restore.h"

#include "qft/checkpoint/branch.h"
#include "qft/checkpoint/verify.h"
#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/io/file.h"

#include <algorithm>
#include <functional>

#include "records.h"

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMessageBytes = 16 << 20;

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& e) {
    return *e.what() != '\0' ? e.what() : "unknown error";
  }
  return {};
}

std::string read_manifest(const fs::path& dir) {
  return io::read_text_file(dir / kManifestFile, std::uint64_t{1} << 31);
}

// Returns, by rank, whether the manifest under this path equals rank 0's. Writes nothing, because the directory may be
// read-only. A copy on a private disk is as good as rank 0's.
std::vector<bool> ranks_with_manifest(comm::Communicator& comm, const fs::path& dir) {
  std::string mine;
  message_of([&] { mine = hash_hex(read_manifest(dir)); });
  const std::vector<std::string> all = comm::all_gather_strings(comm, mine);
  std::vector<bool> same;
  for (const std::string& hash : all) same.push_back(!hash.empty() && hash == all.front());
  return same;
}

// Cuts elements [begin, end) into ranges that fit into one message.
void for_each_message(std::uint64_t begin, std::uint64_t end, DType dtype,
                      const std::function<void(std::uint64_t, std::uint64_t)>& body) {
  const std::uint64_t step = kMessageBytes / size_of(dtype);
  for (; begin < end; begin += std::min(step, end - begin)) body(begin, begin + std::min(step, end - begin));
}

// Verifies `dir` with all ranks that see it: rank 0 receives all errors.
VerifyReport verify_together(comm::Communicator& comm, const fs::path& dir) {
  const std::vector<bool> sees = ranks_with_manifest(comm, dir);
  const auto rank = static_cast<std::size_t>(comm.rank());
  nlohmann::json errors = nlohmann::json::array();
  if (sees[rank] || rank == 0) {
    const auto part = std::count(sees.begin(), sees.begin() + comm.rank(), true);
    const auto parts = std::max<std::ptrdiff_t>(1, std::count(sees.begin(), sees.end(), true));
    errors = verify_share(dir, static_cast<int>(part), static_cast<int>(parts)).errors;
  }
  VerifyReport report;
  using nlohmann::json;
  for (const std::string& text : comm::all_gather_strings(comm, errors.dump(-1, ' ', false, json::error_handler_t::replace)))
    for (const json& error : json::parse(text)) {
      const auto line = error.get<std::string>();
      if (std::find(report.errors.begin(), report.errors.end(), line) == report.errors.end()) report.errors.push_back(line);
    }
  return report;
}

}  // namespace

std::optional<fs::path> find_latest_verified(comm::Communicator& comm, const fs::path& output_dir,
                                             const std::optional<fs::path>& from) {
  comm::Communicator& host = comm.host();
  nlohmann::json names = nlohmann::json::array();
  comm::agreed(host, [&] {
    if (host.rank() != 0) return;
    const auto began = from ? std::optional(branch_point(*from)) : std::nullopt;
    for (const fs::path& dir : resume_order(output_dir, began)) names.push_back(dir.filename().string());
  });
  names = comm::broadcast_json(host, names);
  for (const nlohmann::json& name : names) {
    const fs::path dir = output_dir / name.get<std::string>();
    const VerifyReport report = verify_together(host, dir);
    if (report.ok()) return dir;
    if (host.rank() == 0) log_skipped(dir, report);
  }
  return std::nullopt;
}

void require_verified(comm::Communicator& comm, const fs::path& dir) {
  comm::Communicator& host = comm.host();
  comm::agreed(host, [&] {
    if (host.rank() == 0) require_checkpoint(dir);
  });
  const VerifyReport report = verify_together(host, dir);
  comm::agreed(host, [&] {
    if (host.rank() == 0 && !report.ok())
      fail("checkpoint '{}' is damaged and is not used: {}{}; resume from another one", dir.string(), report.errors.front(),
           report.errors.size() > 1 ? fmt::format(" (and {} more)", report.errors.size() - 1) : "");
  });
}

SharedCheckpoint::SharedCheckpoint(comm::Communicator& comm, fs::path dir) : comm_(comm.host()), dir_(std::move(dir)) {
  const std::string text = comm::on_root(comm_, [&] {
    Manifest::read(dir_);
    return read_manifest(dir_);
  });
  comm::agreed(comm_, [&] { manifest_ = Manifest::parse(text); });
  sees_ = ranks_with_manifest(comm_, dir_);
  comm::agreed(comm_, [&] {
    if (sees_[static_cast<std::size_t>(comm_.rank())]) local_ = Checkpoint::open(dir_);
  });
}

void SharedCheckpoint::read(std::span<const HostSlice> targets) const {
  std::string error;
  if (local_)
    error = message_of([&] {
      for (const HostSlice& target : targets) local_->read(target);
    });
  for (int rank = 1; rank < comm_.size(); ++rank) {
    if (sees_[static_cast<std::size_t>(rank)]) continue;
    if (comm_.rank() == 0) {
      const std::string problem = serve(rank);
      if (error.empty()) error = problem;
    }
    if (comm_.rank() == rank) fetch(targets);
  }
  comm::all_agree(comm_, error);
}

// Answers fetch(): sends the bytes of each target in turn. A failure does not stop the exchange, because both sides know its
// length.
std::string SharedCheckpoint::serve(int rank) const {
  std::int64_t length = 0;
  comm_.recv(&length, 1, DType::i64, rank);
  std::string text(static_cast<std::size_t>(length), '\0');
  comm_.recv(text.data(), text.size(), DType::u8, rank);
  std::string error;
  std::vector<char> buffer;
  for (const nlohmann::json& request : nlohmann::json::parse(text)) {
    HostSlice target;
    target.name = request.at("name").get<std::string>();
    target.dtype = static_cast<DType>(request.at("dtype").get<int>());
    target.shape = request.at("shape").get<Shape>();
    target.box = box_from_json(request.at("box"));
    for_each_message(request.at("begin"), request.at("end"), target.dtype, [&](std::uint64_t begin, std::uint64_t end) {
      target.begin = begin;
      target.end = end;
      buffer.resize(target.bytes());
      target.data = buffer.data();
      if (error.empty()) error = message_of([&] { local_->read(target); });
      comm_.send(buffer.data(), buffer.size(), DType::u8, rank);
    });
  }
  return error;
}

void SharedCheckpoint::fetch(std::span<const HostSlice> targets) const {
  nlohmann::json requests = nlohmann::json::array();
  for (const HostSlice& t : targets)
    requests.push_back({{"name", t.name},
                        {"dtype", static_cast<int>(t.dtype)},
                        {"shape", t.shape},
                        {"box", to_json(t.box)},
                        {"begin", t.begin},
                        {"end", t.end}});
  const std::string text = requests.dump();
  const auto length = static_cast<std::int64_t>(text.size());
  comm_.send(&length, 1, DType::i64, 0);
  comm_.send(text.data(), text.size(), DType::u8, 0);
  for (const HostSlice& t : targets)
    for_each_message(t.begin, t.end, t.dtype, [&](std::uint64_t begin, std::uint64_t end) {
      const std::size_t width = size_of(t.dtype);
      comm_.recv(static_cast<char*>(t.data) + (begin - t.begin) * width, (end - begin) * width, DType::u8, 0);
    });
}

}  // namespace qft::checkpoint
