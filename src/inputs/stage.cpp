#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/core/units.h"
#include "qft/encode/dataset_info.h"
#include "qft/inputs/inputs.h"
#include "qft/inputs/staged.h"

#include <algorithm>
#include <chrono>
#include <sys/stat.h>

#include "relay.h"
#include "streams.h"

namespace qft::inputs {
namespace {

namespace fs = std::filesystem;
using config::Purpose;
using config::RunConfig;

/// A path of the run that may be copied: its key in RunConfig::folders, and which files of it are read.
struct Candidate {
  std::string key;
  hub::Wanted wanted;
  bool datasets = false;  ///< dataset_dir: what the named datasets need of it
};

std::vector<Candidate> candidates(const RunConfig& c, Purpose purpose) {
  const bool weights = purpose != Purpose::pack;
  std::vector<Candidate> all{{c.model.model_name_or_path, {.needs = weights ? hub::Needs::model : hub::Needs::tokenizer}},
                             {c.model.tokenizer_name_or_path, {.needs = hub::Needs::tokenizer}}};
  for (const std::string& name : c.model.adapter_name_or_path)
    all.push_back({name, {.needs = hub::Needs::adapter, .folder = c.model.adapter_folder}});
  all.push_back({c.data.pack, {.everything = true}});
  all.push_back({c.data.eval_pack, {.everything = true}});
  const bool data = purpose == Purpose::pack || purpose == Purpose::train || purpose == Purpose::eval;
  if (data && c.data.pack.empty() && !(c.data.dataset.empty() && c.data.eval_dataset.empty())) {
    all.push_back({c.data.dataset_dir, {.everything = true}, true});
    for (const auto* names : {&c.data.dataset, &c.data.eval_dataset})
      for (const std::string& name : *names) all.push_back({name.substr(0, name.rfind('#')), {.everything = true}});
    for (const auto& [key, folder] : c.folders)
      if (key.starts_with("dataset:")) all.push_back({key, {.everything = true}});
  }
  std::vector<Candidate> once;
  for (Candidate& candidate : all)
    if (!candidate.key.empty() && std::ranges::find(once, candidate.key, &Candidate::key) == once.end())
      once.push_back(std::move(candidate));
  return once;
}

/// dataset_info.json and the files in that folder that the named datasets have.
std::vector<std::string> dataset_files(const RunConfig& c, const fs::path& dir) {
  std::vector<std::string> files;
  if (fs::exists(dir / "dataset_info.json")) files.emplace_back("dataset_info.json");
  std::vector<std::string> names = c.data.dataset;
  names.insert(names.end(), c.data.eval_dataset.begin(), c.data.eval_dataset.end());
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const auto& spec : encode::load_dataset_info(dir, names, c.folders))
    for (const fs::path& file : spec.files) {
      const std::string inside = fs::absolute(file).lexically_relative(fs::absolute(dir)).generic_string();
      if (!inside.empty() && !inside.starts_with("..") && std::ranges::find(files, inside) == files.end())
        files.push_back(inside);
    }
  return files;
}

/// What a copy is made of; no files where there is nothing to copy.
StagedItem item_of(const RunConfig& c, const Candidate& candidate, const fs::path& path) {
  StagedItem item;
  item.is_file = fs::is_regular_file(path);
  const fs::path base = item.is_file ? path.parent_path() : path;
  item.source = fs::absolute(path).lexically_normal();
  std::vector<std::string> files;
  if (item.is_file)
    files = {path.filename().string()};
  else if (candidate.datasets)
    files = dataset_files(c, path);
  else
    files = hub::files_of(path, candidate.wanted);
  item.name = candidate.key.substr(candidate.key.find(':') == std::string::npos ? 0 : candidate.key.find(':') + 1);
  item.name = fs::path(item.name).lexically_normal().filename().string();
  for (const std::string& file : files) {
    struct stat status{};
    require(stat((base / file).c_str(), &status) == 0, "cannot read '{}'", (base / file).string());
    item.files.push_back({file,
                          static_cast<std::uint64_t>(status.st_size),
                          status.st_mtim.tv_sec * INT64_C(1'000'000'000) + status.st_mtim.tv_nsec,
                          {}});
  }
  return item;
}

bool on_same_disk(const fs::path& a, const fs::path& b) {
  struct stat at_a{}, at_b{};
  return stat(a.c_str(), &at_a) == 0 && stat(b.c_str(), &at_b) == 0 && at_a.st_dev == at_b.st_dev;
}

/// Holds the copies that this process uses, to its end.
StageFolder& own_disk(const fs::path& dir, std::uint64_t limit) {
  static StageFolder folder(dir, limit);
  return folder;
}

std::string bytes_of(std::uint64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

/// The leaders of all nodes, one rank each.
class Staging {
 public:
  Staging(const RunConfig& config, comm::Communicator& leaders)
      : config_(config),
        leaders_(leaders),
        dir_(config.model.stage_to),
        limit_(static_cast<std::uint64_t>(config.model.stage_limit.value_or(0) * 1e9)) {}

  /// The candidate's path on this node from now on.
  std::string run(const Candidate& candidate) {
    const fs::path path = config_.folder_of(candidate.key);
    std::error_code code;
    const bool seen = fs::exists(path, code);
    const auto all = comm::all_gather_value(leaders_, static_cast<int>(seen));
    const auto holder = std::ranges::find(all, 1) - all.begin();
    if (holder == static_cast<std::ptrdiff_t>(all.size())) return path.string();  // whoever needs it says that it is missing
    holder_ = static_cast<int>(holder);
    const bool holds = leaders_.rank() == holder_;
    nlohmann::json told;
    comm::agreed(leaders_, [&] { told = holds ? describe(candidate, path) : nlohmann::json(); });
    told = comm::broadcast_json(leaders_, told, holder_);
    if (told.is_null()) return path.string();
    item_ = staged_item_of(told);
    std::optional<fs::path> there;
    comm::agreed(leaders_, [&] { there = here(path, seen); });
    bool anybody = comm::all_reduce_value(leaders_, static_cast<int>(!there), comm::ReduceOp::max) != 0;
    if (anybody) copy(there);
    return item_.is_file && *there != path ? (*there / item_.files.front().path).string() : there->string();
  }

 private:
  /// Nothing where this node reads something else than a model: what reads it will say so.
  nlohmann::json describe(const Candidate& candidate, const fs::path& path) const {
    StagedItem item;
    try {
      item = item_of(config_, candidate, path);
    } catch (const Error& e) {
      log::debug("'{}' is not staged: {}", path.string(), e.what());
      return {};
    }
    if (item.files.empty()) return {};
    for (const auto& name : {item.source.string(), item.name})
      require(as_utf8(name) == name, "cannot stage '{}': its name is no UTF-8; rename it", as_utf8(name));
    for (const StagedFile& file : item.files)
      require(as_utf8(file.path) == file.path, "cannot stage '{}': the name '{}' in it is no UTF-8; rename it",
              item.source.string(), as_utf8(file.path));
    return to_json(item);
  }

  /// The path itself where it lies on this node's own disk, or a copy from earlier.
  std::optional<fs::path> here(const fs::path& path, bool seen) {
    StageFolder& folder = own_disk(dir_, limit_);
    if (seen && on_same_disk(path, dir_)) return path;
    return folder.find(item_);
  }

  /// From the holder to all who lack it.
  void copy(std::optional<fs::path>& there) {
    const bool holds = leaders_.rank() == holder_, lacks = !there, tells = leaders_.rank() == 0;
    const int copies = comm::all_reduce_value(leaders_, static_cast<int>(lacks));
    if (tells)
      log::info("staging {} ({}) from '{}' to '{}' of {} node(s)", item_.name, bytes_of(item_.bytes()), item_.source.string(),
                dir_.string(), copies);
    const auto start = std::chrono::steady_clock::now();
    fs::path made;
    comm::agreed(leaders_, [&] {
      if (lacks) made = own_disk(dir_, limit_).begin(item_);
    });
    const auto chain = leaders_.split(holds || lacks ? 0 : 1, holds ? 0 : 1 + leaders_.rank(), "stage");
    std::string error;
    if (holds || lacks) error = send(*chain, made);
    if (!error.empty() && !made.empty()) StageFolder::drop(made), made.clear();
    comm::all_agree(leaders_, error);
    comm::agreed(leaders_, [&] {
      if (lacks) there = own_disk(dir_, limit_).commit(item_, made);
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (tells)
      log::info("staged {}: {:.1f} s, {}/s", item_.name, seconds,
                bytes_of(static_cast<std::uint64_t>(static_cast<double>(item_.bytes()) / std::max(seconds, 1e-3))));
  }

  /// What went wrong on this node; all of the chain go on to the end, or the others would wait.
  std::string send(comm::Communicator& chain, const fs::path& made) {
    const bool first = chain.rank() == 0;
    const fs::path base = item_.is_file ? item_.source.parent_path() : item_.source;
    Progress progress(fmt::format("staging {}: MB", item_.name), static_cast<std::int64_t>(item_.bytes() / 1'000'000) + 1,
                      leaders_.rank() == 0);
    StreamReader reader(base, item_.files);
    StreamWriter writer(made, item_.files);
    relay(
        chain, item_.bytes(),
        [&](std::span<std::byte> bytes) {
          reader.read(bytes);
          progress.update(static_cast<std::int64_t>(reader.position() / 1'000'000));
        },
        made.empty() ? Write() : [&](std::span<const std::byte> bytes) { writer.write(bytes); });
    progress.clear();
    if (first) item_.files = reader.finish();
    item_ = staged_item_of(comm::broadcast_json(chain, to_json(item_), 0));
    std::string error = first ? reader.error() : "";
    if (error.empty() && !made.empty()) error = writer.finish(item_.files);
    return error;
  }

  const RunConfig& config_;
  comm::Communicator& leaders_;
  fs::path dir_;
  std::uint64_t limit_;
  int holder_ = 0;
  StagedItem item_;
};

}  // namespace

namespace {

/// This node's path of each candidate, by key. The leaders of the nodes work and agree among themselves on every error.
nlohmann::json staged(const RunConfig& config, const std::vector<Candidate>& all, comm::Session& session) {
  const bool leads = session.local_rank() == 0;
  const auto leaders = session.world().split(leads ? 0 : 1, session.rank(), "leaders");
  std::string told;
  comm::agreed(session.world(), [&] {
    if (!leads) return;
    Staging staging(config, *leaders);
    nlohmann::json folders = nlohmann::json::object();
    for (const Candidate& candidate : all) folders[candidate.key] = staging.run(candidate);
    told = folders.dump();
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
  return staged(config, {{path.string(), {.everything = true}}}, session).at(path.string()).get<std::string>();
}

}  // namespace qft::inputs
