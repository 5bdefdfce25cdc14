#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/core/units.h"
#include "qft/inputs/inputs.h"
#include "qft/inputs/staged.h"
#include "qft/io/file.h"
#include "qft/job/stop_signal.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <sys/stat.h>
#include <thread>
#include <utility>

#include "candidates.h"
#include "relay.h"
#include "streams.h"

namespace qft::inputs {
namespace {

namespace fs = std::filesystem;
using config::Purpose;
using config::RunConfig;
using std::chrono::milliseconds;

bool on_same_disk(const fs::path& a, const fs::path& b) {
  struct stat at_a{}, at_b{};
  return stat(a.c_str(), &at_a) == 0 && stat(b.c_str(), &at_b) == 0 && at_a.st_dev == at_b.st_dev;
}

/// Holds the copies that this process uses until it ends.
StageFolder& stage_folder(const fs::path& dir, std::uint64_t limit) {
  static StageFolder folder(dir, limit);
  return folder;
}

fs::path base_of(const StagedItem& item) {
  return item.is_file ? item.source.parent_path() : item.source;
}

/// Returns sampled hashes that identify the content of the item's files on this node.
nlohmann::json sampled_hashes(const StagedItem& item) {
  nlohmann::json samples = nlohmann::json::object();
  for (const StagedFile& file : item.files) samples[file.path] = io::sampled_hash(io::File::open_read(base_of(item) / file.path));
  return samples;
}

/// The folder from begin(). The destructor removes it unless the path was cleared.
class PendingCopy {
 public:
  PendingCopy() = default;
  PendingCopy(const PendingCopy&) = delete;
  PendingCopy& operator=(const PendingCopy&) = delete;
  ~PendingCopy() {
    if (!path.empty()) StageFolder::drop(path);
  }
  fs::path path;
};

/// A candidate that at least one node sees.
struct StagedInput {
  std::string key;
  StagedItem item;                     ///< as on the holder
  int holder = 0;                      ///< rank of the holder among the leaders
  std::optional<fs::path> there = {};  ///< path on this node's local disk: the original or a copy
  bool in_place = false;               ///< `there` is the original path
};

/// Stages inputs. The leaders, one rank per node, run it together.
class Stager {
 public:
  Stager(const RunConfig& config, comm::Communicator& leaders)
      : config_(config),
        leaders_(leaders),
        dir_(config.model.stage_to),
        limit_(static_cast<std::uint64_t>(config.model.stage_limit.value_or(0) * 1e9)) {}

  /// Returns this node's new path for each candidate, by key. Holds all existing copies before making room for new ones.
  nlohmann::json run(const std::vector<Candidate>& all) {
    std::vector<StagedInput> inputs;
    for (const Candidate& candidate : all)
      if (auto input = find_input(candidate)) inputs.push_back(std::move(*input));
    nlohmann::json folders = nlohmann::json::object();
    for (StagedInput& input : inputs) {
      if (any_of_leaders(!input.there)) copy(input);
      const bool file_in_copy = input.item.is_file && !input.in_place;
      folders[input.key] = (file_in_copy ? *input.there / input.item.files.front().path : *input.there).string();
    }
    return folders;
  }

 private:
  bool is_first() const { return leaders_.rank() == 0; }
  StageFolder& disk() const { return stage_folder(dir_, limit_); }
  bool any_of_leaders(bool here) const {
    return comm::all_reduce_value(leaders_, static_cast<int>(here), comm::ReduceOp::max) != 0;
  }

  /// Finds the holder of the candidate, and its path on this node's local disk. Returns nullopt if no node has files to copy.
  std::optional<StagedInput> find_input(const Candidate& candidate) {
    StagedInput input{candidate.key, {}};
    StagedItem own;
    comm::agreed(leaders_, [&] {
      static_cast<void>(disk());  // creates the folder
      own = item_of(config_, candidate);
    });
    const auto all = comm::all_gather_value(leaders_, static_cast<int>(!own.files.empty()));
    input.holder = static_cast<int>(std::ranges::find(all, 1) - all.begin());
    if (input.holder == static_cast<int>(all.size())) return std::nullopt;  // its reader will report that it is missing
    input.item = staged_item_of(comm::broadcast_json(leaders_, to_json(own), input.holder));
    const bool holds = leaders_.rank() == input.holder;
    const fs::path path = config_.folder_of(candidate.key);
    input.in_place = !own.files.empty() && on_same_disk(path, dir_);
    if (any_of_leaders(input.in_place && !holds)) {
      const auto theirs =
          nlohmann::json::parse(comm::on_root(leaders_, [&] { return sampled_hashes(own).dump(); }, input.holder));
      input.in_place = input.in_place && (holds || is_same(own, theirs));
    }
    comm::agreed(leaders_, [&] { input.there = input.in_place ? path : disk().find(input.item); });
    return input;
  }

  /// True if the files on this node's local disk equal the holder's. Incomplete or other versions differ.
  bool is_same(const StagedItem& own, const nlohmann::json& theirs) const {
    try {
      if (sampled_hashes(own) == theirs) return true;
    } catch (const Error& e) {
      log::debug("{}", e.what());
    }
    log::warn("'{}' on this node differs from the first node's files: copying them from there", own.source.string());
    return false;
  }

  /// Only one job on a node makes a copy; the others wait. Either all leaders get their claims or none: otherwise two jobs could
  /// wait for each other.
  std::unique_ptr<StageClaim> claim(StagedInput& input) {
    std::minstd_rand chance(std::random_device{}());
    std::unique_ptr<StageClaim> claim;
    for (bool said = false;;) {
      const bool lacks = !input.there;
      if (lacks) claim = disk().claim(input.item);
      if (!any_of_leaders(lacks && !claim)) break;
      claim.reset();
      if (is_first() && !std::exchange(said, true)) log::info("another job stages {}: waiting for it", input.item.name);
      job::stop_before_training(leaders_);
      const auto wait = comm::broadcast_value(leaders_, std::uniform_int_distribution<int>(200, 1500)(chance));
      for (const auto until = std::chrono::steady_clock::now() + milliseconds(wait); std::chrono::steady_clock::now() < until;)
        std::this_thread::sleep_for(milliseconds(50)), activity::tick();
    }
    comm::agreed(leaders_, [&] {
      if (!input.there) input.there = disk().find(input.item);  // another job may have finished it by now
    });
    return claim;
  }

  /// Copies the item from the holder to all leaders that lack it.
  void copy(StagedInput& input) {
    const auto mine = claim(input);
    const bool holds = leaders_.rank() == input.holder, lacks = !input.there;
    const int copies = comm::all_reduce_value(leaders_, static_cast<int>(lacks));
    if (copies == 0) return;
    const StagedItem& item = input.item;
    if (is_first())
      log::info("staging {} ({}) from '{}' to '{}' on {} node(s)", item.name, format_bytes(static_cast<double>(item.bytes())),
                item.source.string(), dir_.string(), copies);
    const auto start = std::chrono::steady_clock::now();
    PendingCopy made;
    comm::agreed(leaders_, [&] {
      if (lacks) made.path = disk().begin(item);
    });
    const auto chain = leaders_.split(holds || lacks ? 0 : 1, holds ? 0 : 1 + leaders_.rank(), "stage");
    std::string error;
    if (holds || lacks) error = send(*chain, input, made.path);
    comm::all_agree(leaders_, error, error == job::kNothingTrained ? kExitRequeue : kExitFailed);
    comm::agreed(leaders_, [&] {
      if (lacks) input.there = disk().commit(item, made.path), made.path.clear();
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (is_first())
      log::info("staged {}: {:.1f} s, {}/s", item.name, seconds,
                format_bytes(std::floor(static_cast<double>(item.bytes()) / std::max(seconds, 1e-3))));
  }

  /// Returns this node's error. All ranks of the chain continue to the end, because the others would wait.
  std::string send(comm::Communicator& chain, StagedInput& input, const fs::path& made) {
    StagedItem& item = input.item;
    const bool first = chain.rank() == 0;
    Progress progress(fmt::format("staging {}: MB", item.name), static_cast<std::int64_t>(item.bytes() / 1'000'000) + 1,
                      is_first());
    StreamReader reader(base_of(item), item.files);
    StreamWriter writer(made, item.files);
    const bool whole = relay(
        chain, item.bytes(),
        [&](std::span<std::byte> bytes) {
          reader.read(bytes);
          progress.update(static_cast<std::int64_t>(reader.position() / 1'000'000));
          return reader.error().empty() && job::stop_requested() == 0;
        },
        made.empty() ? Write() : [&](std::span<const std::byte> bytes) { writer.write(bytes); });
    progress.clear();
    if (!whole) return !first ? "" : reader.error().empty() ? job::kNothingTrained : reader.error();
    if (first) item.files = reader.finish();
    item = staged_item_of(comm::broadcast_json(chain, to_json(item), 0));
    std::string error = first ? reader.error() : "";
    if (error.empty() && !made.empty()) error = writer.finish(item.files);
    return error;
  }

  const RunConfig& config_;
  comm::Communicator& leaders_;
  fs::path dir_;
  std::uint64_t limit_;
};

/// Returns this node's path for each candidate that was found, by key. The nodes' leaders do the work and agree on every error.
nlohmann::json staged(const RunConfig& config, const std::vector<Candidate>& all, comm::Session& session) {
  const bool leads = session.local_rank() == 0;
  const auto leaders = session.world().split(leads ? 0 : 1, session.rank(), "leaders");
  std::string told;
  comm::agreed(session.world(), [&] {
    if (leads) told = Stager(config, *leaders).run(all).dump();
  });
  return nlohmann::json::parse(comm::broadcast_string(session.node_group(), std::move(told)));
}

}  // namespace

void stage(RunConfig& config, Purpose purpose, comm::Session& session) {
  const nlohmann::json folders = staged(config, candidates(config, purpose), session);
  for (const auto& [key, folder] : folders.items()) config.folders[key] = folder.get<std::string>();
}

fs::path stage_pack(const RunConfig& config, const fs::path& path, comm::Session& session) {
  if (config.model.stage_to.empty()) return path;
  return staged(config, {{path.string(), {.everything = true}}}, session).value(path.string(), path.string());
}

}  // namespace qft::inputs
