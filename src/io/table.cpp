#include "qft/io/table.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/program.h"
#include "qft/io/table_plugin.h"

#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <set>

namespace qft::io {
namespace {

namespace fs = std::filesystem;

/// Returns QFT_BACKEND_PATH, or else the program's folder and, if installed, lib/qft.
std::vector<fs::path> folders() {
  if (const char* path = std::getenv("QFT_BACKEND_PATH")) return {path};
  const fs::path program = program_folder();
  return {program, program.parent_path() / "lib/qft"};
}

struct Loaded {
  const TablePlugin* plugin = nullptr;
  std::string why;
};

Loaded load() {
  std::error_code code;
  std::string looked;
  for (const fs::path& folder : folders()) {
    const fs::path file = folder / kTablePluginFile;
    looked += (looked.empty() ? "" : " and ") + folder.string();
    if (!fs::exists(file, code)) continue;
    void* object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    const auto function =
        object == nullptr ? nullptr : reinterpret_cast<const TablePlugin* (*)()>(dlsym(object, kTablePluginFunction));
    if (function == nullptr) {
      const char* reason = dlerror();
      return {nullptr, fmt::format("'{}' does not load ({}): add the folder of libarrow and libparquet, for instance pyarrow's "
                                   "wheel, to LD_LIBRARY_PATH",
                                   file.string(), reason == nullptr ? "no reason given" : reason)};
    }
    const TablePlugin* plugin = function();
    if (plugin->version == kTablePluginVersion) return {plugin, {}};
    return {nullptr, fmt::format("'{}' comes from another build than the program: rebuild both", file.string())};
  }
  return {nullptr, fmt::format("{} is not in {}: it is built if CMake finds Apache Arrow (uv pip install pyarrow, or "
                               "-DQFT_ARROW_DIR=DIR)",
                               kTablePluginFile, looked)};
}

const TablePlugin& plugin_for(const fs::path& path) {
  static const Loaded loaded = load();
  const std::string kind = path.extension().string().substr(1);
  if (loaded.plugin == nullptr)
    fail(
        "'{}' needs Apache Arrow's library, and {}. Or convert the file to JSON lines, in Python: "
        "datasets.load_dataset('{}', data_files='{}')['train'].to_json('FILE.jsonl')",
        path.string(), loaded.why, kind, path.string());
  return *loaded.plugin;
}

TableFault keep_in(std::string& reason) {
  return {&reason, [](void* context, const char* text) { *static_cast<std::string*>(context) = text; }};
}

// Once per file, however often the file is opened.
void log_left_out(const fs::path& path) {
  static std::mutex mutex;
  static std::set<fs::path> said;
  const std::lock_guard lock(mutex);
  if (said.insert(path).second)
    log::info(
        "{}: null members of objects in descriptions of tools and calls are left out: the file has one type for all rows, which "
        "gives each object every key",
        path.string());
}

}  // namespace

TableFile::TableFile(const fs::path& path) : path_(path) {
  const TablePlugin& plugin = plugin_for(path);
  std::string reason;
  void* table = plugin.open(path.c_str(), keep_in(reason));
  require(table != nullptr, "cannot read '{}': {}", path.string(), reason);
  table_ = std::shared_ptr<void>(table, plugin.close);
  for (std::uint64_t i = 0; i < plugin.groups(table); ++i) starts_.push_back(starts_.back() + plugin.rows(table, i));
}

TableRows TableFile::read(std::size_t group) const {
  TableRows rows;
  std::string reason;
  const TableSink sink{&rows,
                       [](void* context, const char* json, std::uint64_t bytes) {
                         auto& to = *static_cast<TableRows*>(context);
                         to.text.append(json, bytes);
                         to.ends.push_back(to.text.size());
                       },
                       [](void* context) { static_cast<TableRows*>(context)->left_out = true; }};
  require(plugin_for(path_).read(table_.get(), group, sink, keep_in(reason)), "cannot read '{}': {}", path_.string(), reason);
  require(static_cast<std::int64_t>(rows.ends.size()) == starts_[group + 1] - starts_[group],
          "'{}': {} rows in group {}, expected {}", path_.string(), rows.ends.size(), group, starts_[group + 1] - starts_[group]);
  if (rows.left_out) log_left_out(path_);
  return rows;
}

}  // namespace qft::io
