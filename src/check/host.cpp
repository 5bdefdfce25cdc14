// Checks a node's processor, memory and limits.
#include "qft/core/units.h"
#include "qft/device/memory.h"
#include "qft/device/threads.h"

#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <thread>

#include "interfaces.h"
#include "probe.h"

namespace qft::check {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kLeastMemory = 1024 * kMiB, kLeastShared = 64 * kMiB;  // per rank
constexpr std::int64_t kLeastStack = 1 * kMiB, kUsualStack = 8 * kMiB;
constexpr std::int64_t kUsualFiles = 4096, kFilesOfAProcess = 256, kFilesOfAPeer = 4;

std::string limit_text(std::int64_t n) {
  return n < 0 ? "unlimited" : format_bytes(static_cast<double>(n));
}

/// Returns the limit; -1: unlimited.
std::int64_t limit(__rlimit_resource which) {
  rlimit value{};
  if (getrlimit(which, &value) != 0 || value.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<std::int64_t>(std::min<rlim_t>(value.rlim_cur, std::numeric_limits<std::int64_t>::max()));
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// Returns "madvise" for "always [madvise] never".
std::string chosen_of(const std::string& text) {
  const auto open = text.find('['), close = text.find(']');
  return open < close && close != std::string::npos ? text.substr(open + 1, close - open - 1) : "";
}

/// A limit of each rank: a rank needs `least`; `usual` is known to be enough.
struct Limit {
  const char* fact;
  std::int64_t least, usual;
  std::string (*words)(std::int64_t);
  const char* what;
};
void judge_limit(const Facts& facts, const Limit& l, Judgement& out) {
  std::vector<int> bad, low;
  for (const int rank : facts.all()) {
    const std::int64_t value = facts.at(rank, l.fact);
    if (value >= 0 && value < l.least)
      bad.push_back(rank);
    else if (value >= 0 && value < l.usual)
      low.push_back(rank);
  }
  const Groups groups = group(facts.all(), [&](int rank) { return l.words(facts.at(rank, l.fact)); });
  const std::string text = groups.size() == 1 ? groups.front().first : describe(facts, groups);
  if (!bad.empty())
    out.fail(fmt::format("{} {}: {} is the least", l.what, text, l.words(l.least)), bad);
  else if (!low.empty())
    out.warn(fmt::format("{} {}: {} is usual", l.what, text, l.words(l.usual)), low);
  else
    out.fine(text);
}

}  // namespace

Json gather_host(Context& context) {
  const comm::Session& session = context.session;
  const auto share = device::cpu_share();
  const auto threads = device::plan_threads(share, session.core_sharers(), session.local_size());
  struct statvfs shm{};
  const bool has_shm = statvfs("/dev/shm", &shm) == 0;
  std::error_code error;
  double load = 0;
  std::ifstream(context.options.root / "proc/loadavg") >> load;
  return {{"local_size", session.local_size()},
          {"cpus", share.cpus},
          {"cpu_list", device::format_cpu_list(share.cpus)},
          {"threads", threads.threads},
          {"threads_advice", threads.advice},
          {"load", load},
          {"node_cpus", std::thread::hardware_concurrency()},
          {"memory", device::host_memory_available()},
          {"memlock", limit(RLIMIT_MEMLOCK)},
          {"nofile", limit(RLIMIT_NOFILE)},
          {"stack", limit(RLIMIT_STACK)},
          {"shm", has_shm ? static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize) : 0},
          {"shm_size", has_shm ? static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize) : 0},
          {"thp", chosen_of(text_of(context.options.root / "sys/kernel/mm/transparent_hugepage/enabled"))},
          {"rdma", can_use_rdma(context.options.root)},
          {"gpus", !context.options.gpus.gpus.empty()}};
}

void judge_memory(const Facts& facts, Judgement& out) {
  std::vector<int> low;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const int rank : facts.all()) {
    const std::int64_t share = facts.at(rank, "memory").get<std::int64_t>() / facts.at(rank, "local_size").get<std::int64_t>();
    least = std::min(least, share);
    if (share < kLeastMemory) low.push_back(rank);
  }
  const auto text = fmt::format("at least {} of host memory available to a rank", limit_text(least));
  if (low.empty())
    out.fine(text);
  else
    out.fail(fmt::format("{}; less than {} on {}", text, limit_text(kLeastMemory), facts.where(low)), low);
}

void judge_binding(const Facts& facts, Judgement& out) {
  std::vector<int> advised;
  for (const int rank : facts.all())
    if (facts.at(rank, "threads_advice") != "") advised.push_back(rank);
  const Groups groups = group(advised, [&](int rank) { return facts.at(rank, "threads_advice").get<std::string>(); });
  for (const auto& [advice, ranks] : groups) out.warn(fmt::format("{}, on {}", advice, facts.where(ranks)), ranks);
  const Groups threads = group(
      facts.all(), [&](int rank) { return fmt::format("{} compute threads a rank", facts.at(rank, "threads").get<int>()); });
  if (threads.size() > 1)
    out.warn(describe(facts, threads), minority(threads),
             "ranks with fewer threads hold up the others: spread ranks evenly over nodes");
  else if (groups.empty())
    out.fine(threads.front().first);
}

void judge_oversubscription(const Facts& facts, Judgement& out) {
  std::map<int, std::set<int>> cpus;
  std::map<int, int> threads;
  for (const int rank : facts.all()) {
    const int node = facts.places[static_cast<std::size_t>(rank)].node;
    for (const int cpu : facts.at(rank, "cpus")) cpus[node].insert(cpu);
    threads[node] += facts.at(rank, "threads").get<int>();
  }
  std::vector<int> over;
  for (const int rank : facts.leaders()) {
    const int node = facts.places[static_cast<std::size_t>(rank)].node;
    if (threads[node] > static_cast<int>(cpus[node].size())) over.push_back(rank);
  }
  const Groups groups = group(over, [&](int rank) {
    const int node = facts.places[static_cast<std::size_t>(rank)].node;
    return fmt::format("{} compute threads share {} CPUs", threads[node], cpus[node].size());
  });
  if (over.empty())
    out.fine("each compute thread has a CPU");
  else
    out.warn(describe(facts, groups), over);
}

void judge_load(const Facts& facts, Judgement& out) {
  std::vector<int> busy;
  for (const int rank : facts.leaders())
    if (facts.at(rank, "load").get<double>() > facts.at(rank, "node_cpus").get<double>()) busy.push_back(rank);
  const Groups groups = group(busy, [&](int rank) {
    return fmt::format("a load of {:.0f} on {} CPUs", facts.at(rank, "load").get<double>(),
                       facts.at(rank, "node_cpus").get<int>());
  });
  if (busy.empty())
    out.fine("no node is busy with other work");
  else
    out.warn(fmt::format("in the last minute {}", describe(facts, groups)), busy);
}

/// A card alone does not mean that messages use it: ports may be down, or a container may lack the device files.
void judge_locked_memory(const Facts& facts, Judgement& out) {
  std::vector<int> bound;
  for (const int rank : facts.all())
    if (facts.at(rank, "memlock").get<std::int64_t>() >= 0 && facts.at(rank, "rdma").get<bool>()) bound.push_back(rank);
  const Groups groups = group(facts.all(), [&](int rank) { return limit_text(facts.at(rank, "memlock")); });
  const std::string text = groups.size() == 1 ? groups.front().first : describe(facts, groups);
  if (!bound.empty() && facts.nodes() > 1)
    out.fail(fmt::format("{}: RDMA needs it unlimited", text), bound);
  else if (!bound.empty())
    out.warn(fmt::format("{}: RDMA to other nodes would need it unlimited", text), bound);
  else if (groups.size() > 1)
    out.warn(text, minority(groups));
  else
    out.fine(text);
}

void judge_open_files(const Facts& facts, Judgement& out) {
  const auto least = kFilesOfAProcess + kFilesOfAPeer * static_cast<std::int64_t>(facts.ranks());
  judge_limit(facts,
              {"nofile", least, kUsualFiles, [](std::int64_t n) { return n < 0 ? std::string("unlimited") : std::to_string(n); },
               "at most"},
              out);
}

void judge_stack(const Facts& facts, Judgement& out) {
  judge_limit(facts, {"stack", kLeastStack, kUsualStack, limit_text, "at most"}, out);
}

void judge_shared_memory(const Facts& facts, Judgement& out) {
  std::vector<int> low;
  bool needed = false;
  for (const int rank : facts.leaders()) {
    const std::int64_t ranks = facts.at(rank, "local_size");
    if (facts.at(rank, "shm").get<std::int64_t>() >= kLeastShared * ranks) continue;
    low.push_back(rank);
    needed = needed || ranks > 1 || facts.at(rank, "gpus").get<bool>();
  }
  const Groups groups = group(low.empty() ? facts.leaders() : low, [&](int rank) {
    return fmt::format("{} of {} free", limit_text(facts.at(rank, "shm")), limit_text(facts.at(rank, "shm_size")));
  });
  if (low.empty()) return out.fine(groups.size() == 1 ? groups.front().first : "enough is free on all nodes");
  const std::string text =
      fmt::format("{}: each rank needs {} for messages inside a node", describe(facts, groups), limit_text(kLeastShared));
  if (needed)
    out.fail(text, low);
  else
    out.warn(text, low);
}

void judge_huge_pages(const Facts& facts, Judgement& out) {
  std::vector<int> never;
  for (const int rank : facts.leaders())
    if (facts.at(rank, "thp") == "never") never.push_back(rank);
  const Groups groups = group(facts.leaders(), [&](int rank) {
    const std::string chosen = facts.at(rank, "thp");
    return chosen.empty() ? std::string("not available") : fmt::format("'{}'", chosen);
  });
  if (!never.empty())
    out.warn(fmt::format("transparent huge pages are switched off on {}: large tensors are slower", facts.where(never)), never);
  else if (groups.size() > 1)
    out.warn(fmt::format("transparent huge pages differ: {}", describe(facts, groups)), minority(groups));
  else
    out.fine(fmt::format("transparent huge pages: {}", groups.front().first));
}

}  // namespace qft::check
