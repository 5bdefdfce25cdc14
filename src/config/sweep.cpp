#include "qft/config/sweep.h"

#include "qft/config/bound_field.h"
#include "qft/config/help.h"
#include "qft/config/nearest.h"
#include "qft/config/start.h"
#include "qft/config/value.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

namespace qft::config {
namespace {

namespace fs = std::filesystem;

/// More runs than this are a mistake.
constexpr std::size_t kMaxRuns = 10'000;
/// Longer folder names are cut.
constexpr std::size_t kMaxNameLength = 150;

struct Axis {
  std::string key;
  std::vector<std::string> values;  // in the form of overrides
};

/// Returns the key's name for any typed form: "--lora-rank", "lora_rank".
std::string key_of(std::string_view typed) {
  if (typed.starts_with("--")) typed.remove_prefix(2);
  std::string key(typed.substr(0, typed.find('=')));
  std::ranges::replace(key, '-', '_');
  return key;
}

std::string override_text(const Value& value) {
  return value.kind == Value::Kind::scalar ? value.text : as_json(value).dump();
}

void require_sweepable(const std::string& key, std::string_view typed) {
  RunConfig defaults;
  const auto fields = bound_fields(defaults);
  if (const BoundField* bound = find_field(fields, key); bound != nullptr && bound->field.per_run_kind == Field::PerRun::named)
    fail_config("--sweep {}: {} cannot be swept: each run gets its own folder in output_dir and the folder's name", typed, key);
  if (reads_key(Purpose::train, key)) return;
  std::vector<std::string_view> names;
  for (const BoundField& field : fields)
    if (reads_key(Purpose::train, field.field.name)) names.push_back(field.field.name);
  const std::string_view near = nearest(key, names);
  fail_config("--sweep {}: '{}' is not a key that qft train reads{}", typed, key,
              near.empty() ? ": qft train --help lists them" : fmt::format(": did you mean '{}'?", near));
}

Axis axis_of(const std::string& typed) {
  const std::string where = "--sweep " + typed;
  const std::size_t sign = typed.find('=');
  if (sign == std::string::npos || sign == 0 || sign + 1 == typed.size())
    fail_config("{}: expected a key and its values, as in --sweep learning_rate=1e-4,2e-4", where);
  Axis axis{key_of(typed), {}};
  require_sweepable(axis.key, typed);
  Value list = parse_yaml("[" + typed.substr(sign + 1) + "]", where);
  if (list.kind == Value::Kind::list && list.items.size() == 1 && list.items[0].kind == Value::Kind::list)
    list = Value(list.items[0]);  // key=[a,b]
  if (list.kind != Value::Kind::list || list.items.empty()) fail_config("{}: no value is given", where);
  for (const Value& item : list.items) {
    if (item.kind == Value::Kind::null || (item.kind == Value::Kind::scalar && item.text.empty()))
      fail_config("{}: a value is empty or null: write a value for each run", where);
    const std::string text = override_text(item);
    if (std::ranges::find(axis.values, text) != axis.values.end()) fail_config("{}: the value {} is given twice", where, text);
    axis.values.push_back(text);
  }
  return axis;
}

/// Returns one part of a folder's name: "lora_rank=8". Replaces characters that a shell or a file system may reject and then adds
/// a hash to keep values distinct.
std::string part_of_name(std::string_view key, std::string_view value) {
  std::string shown;
  for (const char c : value) shown += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' ? c : '_';
  if (shown != value) shown += "~" + hash_hex(value).substr(0, 4);
  return fmt::format("{}={}", key, shown);
}

std::string name_of(const std::vector<std::string>& overrides) {
  std::string name;
  for (const std::string& text : overrides) {
    const std::size_t sign = text.find('=');
    name += (name.empty() ? "" : "+") + part_of_name(text.substr(0, sign), std::string_view(text).substr(sign + 1));
  }
  if (name.size() <= kMaxNameLength) return name;
  return fmt::format("{}~{}", name.substr(0, kMaxNameLength - 17), hash_hex(name).substr(0, 16));
}

std::vector<Axis> axes_of(const CommandLine& line, std::span<const std::string> sweeps) {
  std::vector<Axis> axes;
  std::size_t runs = 1;
  for (const std::string& typed : sweeps) {
    Axis axis = axis_of(typed);
    if (std::ranges::find(axes, axis.key, &Axis::key) != axes.end())
      fail_config("--sweep {}: {} is swept twice: give all its values in one --sweep", typed, axis.key);
    for (const std::string& text : line.overrides)
      if (key_of(text) == axis.key) fail_config("--sweep {}: {} is also given as {}: remove one of them", typed, axis.key, text);
    runs *= axis.values.size();
    if (runs > kMaxRuns) fail_config("--sweep {}: the sweep has more than {} runs", typed, kMaxRuns);
    axes.push_back(std::move(axis));
  }
  return axes;
}

/// Completes the command line of one run: its folders and name inside the sweep's output_dir.
void place(SweepRun& run, const RunConfig& config) {
  const TrainingArgs& t = config.training;
  run.dir = fs::path(t.output_dir) / run.name;
  run.line.overrides.push_back("output_dir=" + run.dir.string());
  run.line.overrides.push_back("run_name=" + (t.run_name.empty() ? run.name : t.run_name + "+" + run.name));
  for (const auto& [key, folder] : {std::pair("logging_dir", t.logging_dir), std::pair("log_dir", t.log_dir)})
    if (!folder.empty()) run.line.overrides.push_back(fmt::format("{}={}", key, (fs::path(folder) / run.name).string()));
  if (const fs::path trace = t.trace; !trace.empty())
    run.line.overrides.push_back("trace=" + (trace.parent_path() / run.name / trace.filename()).string());
}

}  // namespace

std::vector<SweepRun> plan_sweep(const CommandLine& line, std::span<const std::string> sweeps) {
  std::vector<SweepRun> runs{{{}, {}, {}, line}};
  for (const Axis& axis : axes_of(line, sweeps)) {
    std::vector<SweepRun> longer;
    for (const SweepRun& run : runs)
      for (const std::string& value : axis.values) {
        longer.push_back(run);
        longer.back().overrides.push_back(axis.key + "=" + value);
        longer.back().line.overrides.push_back(longer.back().overrides.back());
      }
    runs = std::move(longer);
  }
  for (SweepRun& run : runs) {
    run.name = name_of(run.overrides);
    try {
      const RunConfig config = run.line.load(Purpose::train);
      if (!trains(config)) fail_config("nothing is trained: --sweep needs do_train");
      place(run, config);
    } catch (const Error& e) {
      fail_config("run {} of the sweep ({}): {}", &run - runs.data() + 1, fmt::join(run.overrides, " "), e.what());
    }
  }
  return runs;
}

const SweepRun& sweep_run_of(const std::vector<SweepRun>& runs, long long index) {
  if (index < 1 || index > static_cast<long long>(runs.size()))
    fail_config("--sweep_index is {}, but the sweep has {} runs, numbered from 1 (--sweep_list shows them)", index, runs.size());
  return runs[static_cast<std::size_t>(index - 1)];
}

}  // namespace qft::config
