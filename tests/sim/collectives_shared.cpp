#include "collectives_shared.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace qft::sim::collectives {

struct Shared::Head {
  std::uint64_t nonce = 0;
  std::atomic<std::int32_t> size{0};
  std::atomic<std::uint32_t> failure{0};  ///< 1: being written, 2: complete
  std::array<char, 2048> text{};
};

namespace {

constexpr std::size_t kPage = 4096;

struct MadeIds {
  std::mutex mutex;
  std::map<std::string, int> files;
};
MadeIds& made_ids() {
  static auto* const all = new MadeIds;
  return *all;
}

std::size_t up(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

/// Returns the lock of a rank's seat; it ends with the last descriptor of the open file.
struct flock lock_of(int rank) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

std::string Shared::make_id() {
  const int file = memfd_create("sim collectives", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0, "no memfd: ", std::strerror(errno));
  Head head;
  std::random_device random;
  head.nonce = (std::uint64_t{random()} << 32 | random()) | 1;
  TORCH_CHECK(pwrite(file, &head, sizeof head, 0) == sizeof head, "cannot write a memfd: ", std::strerror(errno));
  const std::string id = c10::str(getpid(), " ", file, " ", head.nonce);
  MadeIds& ids = made_ids();
  const std::lock_guard lock(ids.mutex);
  ids.files[id] = file;
  return id;
}

void Shared::close_id(const std::string& id) {
  MadeIds& ids = made_ids();
  const std::lock_guard lock(ids.mutex);
  const auto found = ids.files.find(id);
  if (found == ids.files.end()) return;
  close(found->second);
  ids.files.erase(found);
}

Shared::Shared(const std::string& id, int rank, int size) : rank_(rank), size_(size) {
  TORCH_CHECK(size >= 1 && size <= kMostRanks && rank >= 0 && rank < size, "rank ", rank, " of ", size,
              " is none: groups have 1 to ", kMostRanks, " ranks");
  int process = 0;
  int file = 0;
  unsigned long long nonce = 0;
  TORCH_CHECK(std::sscanf(id.c_str(), "%d %d %llu", &process, &file, &nonce) == 3, "'", id,
              "' is not a unique id of this library");
  const std::string path = c10::str("/proc/", process, "/fd/", file);
  file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  TORCH_CHECK(file_ >= 0, "the process that made the unique id, ", process, ", cannot be reached (", path, ": ",
              std::strerror(errno), "): it has ended, or the group was complete before");
  const auto n = static_cast<std::size_t>(size);
  bytes_ = up(sizeof(Head)) + up(n * sizeof(Seat)) + up(2 * n * n * sizeof(End)) + (n + n * n) * sizeof(Box);
  if (lseek(file_, 0, SEEK_END) < static_cast<off_t>(bytes_)) (void)!ftruncate(file_, static_cast<off_t>(bytes_));
  void* const data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (data != MAP_FAILED) data_ = static_cast<std::byte*>(data);
  const auto refuse = [&](const std::string& why) {
    if (data_ != nullptr) munmap(data_, bytes_);
    close(file_);
    TORCH_CHECK(false, why);
  };
  if (data_ == nullptr) refuse(c10::str("cannot map ", bytes_, " bytes: ", std::strerror(errno)));
  auto& head = *reinterpret_cast<Head*>(data_);
  if (head.nonce != nonce) refuse(c10::str("the process ", process, " did not make the unique id '", id, "'"));
  std::int32_t first = 0;
  if (!head.size.compare_exchange_strong(first, size) && first != size)
    refuse(c10::str("rank ", rank, " joins a group of ", size, ", but another rank joined one of ", first));
  struct flock lock = lock_of(rank);
  if (fcntl(file_, F_OFD_SETLK, &lock) != 0 || seat(rank).joined.load() != 0)
    refuse(c10::str("rank ", rank, " of ", size, " is taken: two came as this rank, or the unique id was used before"));
  seat(rank).joined = 1;
}

Shared::~Shared() {
  Left none = Left::no;
  seat(rank_).left.compare_exchange_strong(none, Left::destroyed);
  munmap(data_, bytes_);
  close(file_);
}

bool Shared::all_joined() const {
  for (int r = 0; r < size_; ++r)
    if (seat(r).joined == 0) return false;
  return true;
}

bool Shared::all_finalize() const {
  for (int r = 0; r < size_; ++r)
    if (seat(r).finalizing == 0) return false;
  return true;
}

bool Shared::died(int rank) const {
  if (rank == rank_ || seat(rank).joined == 0 || seat(rank).left != Left::no) return false;
  struct flock lock = lock_of(rank);
  return fcntl(file_, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK && seat(rank).left == Left::no;
}

Seat& Shared::seat(int rank) const {
  return reinterpret_cast<Seat*>(data_ + up(sizeof(Head)))[rank];
}

End* Shared::ends(int from, int to) const {
  const auto n = static_cast<std::size_t>(size_);
  auto* const all = reinterpret_cast<End*>(data_ + up(sizeof(Head)) + up(n * sizeof(Seat)));
  return all + 2 * (static_cast<std::size_t>(from) * n + static_cast<std::size_t>(to));
}

Box& Shared::box(int from) const {
  const auto n = static_cast<std::size_t>(size_);
  auto* const all = reinterpret_cast<Box*>(data_ + up(sizeof(Head)) + up(n * sizeof(Seat)) + up(2 * n * n * sizeof(End)));
  return all[from];
}

Box& Shared::box(int from, int to) const {
  return (&box(size_ - 1))[1 + from * size_ + to];
}

std::string Shared::failure() const {
  const auto& head = *reinterpret_cast<const Head*>(data_);
  return head.failure.load() == 2 ? std::string(head.text.data()) : std::string();
}

void Shared::tell_failure(const std::string& text) const {
  auto& head = *reinterpret_cast<Head*>(data_);
  std::uint32_t none = 0;
  if (!head.failure.compare_exchange_strong(none, 1)) return;
  text.copy(head.text.data(), head.text.size() - 1);
  head.failure = 2;
}

bool Shared::waits(int rank, int peer) const {
  return sender(rank, peer).planned > receiver(rank, peer).planned || receiver(peer, rank).planned > sender(peer, rank).planned;
}

bool Shared::find_ring(std::vector<int>& path, std::array<bool, kMostRanks>& seen) const {
  for (int r = 0; r < size_; ++r) {
    if (!waits(path.back(), r)) continue;
    if (r == path.front()) return true;
    if (std::exchange(seen[static_cast<std::size_t>(r)], true)) continue;
    path.push_back(r);
    if (find_ring(path, seen)) return true;
    path.pop_back();
  }
  return false;
}

// A rank waits for a peer until the peer begins a launch. The ring is real if it is seen twice and none of its ranks began a
// launch in between.
std::vector<int> Shared::ring_of_waits() const {
  std::array<std::uint64_t, kMostRanks> begun{};
  const auto number = [&](int r) { return seat(r).begun.load(); };
  for (int r = 0; r < size_; ++r) begun[static_cast<std::size_t>(r)] = number(r);
  std::vector<int> ring{rank_};
  std::array<bool, kMostRanks> seen{};
  seen[static_cast<std::size_t>(rank_)] = true;
  if (!find_ring(ring, seen)) return {};
  for (std::size_t i = 0; i < ring.size(); ++i) {
    if (!waits(ring[i], ring[(i + 1) % ring.size()])) return {};
  }
  for (const int r : ring)
    if (number(r) != begun[static_cast<std::size_t>(r)] || number(r) % 2 != 0) return {};
  return ring;
}

}  // namespace qft::sim::collectives
