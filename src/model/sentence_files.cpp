#include "qft/model/sentence_files.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/adapter_config.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

namespace fs = std::filesystem;

SentenceModule read_module(const nlohmann::json& entry, const fs::path& file) {
  const auto text = [&](const char* key) {
    require(entry.is_object() && entry.contains(key) && entry[key].is_string(),
            "'{}' holds {}, expected modules: objects with the texts path and type", file.string(), entry.dump().substr(0, 200));
    return entry[key].get<std::string>();
  };
  const std::string type = text("type");
  SentenceModule module{type.substr(type.rfind('.') + 1), text("path")};
  while (module.folder.ends_with('/')) module.folder.pop_back();
  if (module.kind == kTransformerModule)
    require(module.folder.empty(), "'{}': the module Transformer has path '{}', but only a model beside this file is read",
            file.string(), module.folder);
  require(module.folder.empty() || is_plain_name(module.folder),
          "'{}': the module {} has path '{}', which is not a folder beside this file", file.string(), module.kind, module.folder);
  return module;
}

bool has_kind(const std::vector<SentenceModule>& modules, std::string_view kind) {
  return std::ranges::find(modules, kind, &SentenceModule::kind) != modules.end();
}

void copy_folder(io::Storage& storage, const fs::path& from, const fs::path& to) {
  if (!fs::is_directory(from)) return;  // a module may have no files
  storage.create_directory(to);
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(from)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  for (const fs::path& name : names) {
    if (!fs::is_directory(from / name)) {
      io::copy_file(storage, member_of(from, name.string()), to / name);
      continue;
    }
    require(!fs::is_symlink(from / name), "'{}' is a link to a folder: put the folder itself there", (from / name).string());
    copy_folder(storage, from / name, to / name);
  }
  storage.sync_directory(to);
}

}  // namespace

std::vector<SentenceModule> sentence_modules(const fs::path& dir) {
  std::vector<SentenceModule> modules;
  if (!fs::exists(dir / kModulesFile)) return modules;
  const fs::path file = member_of(dir, kModulesFile);
  const nlohmann::json list = io::read_json(file);
  require(list.is_array() && !list.empty(), "'{}' is not a list of modules", file.string());
  for (const nlohmann::json& entry : list) modules.push_back(read_module(entry, file));
  return modules;
}

SentenceModel sentence_model(const fs::path& dir) {
  const std::vector<SentenceModule> modules = sentence_modules(dir);
  return modules.empty()                        ? SentenceModel::none
         : has_kind(modules, kPoolingModule)    ? SentenceModel::embedding
         : has_kind(modules, kLogitScoreModule) ? SentenceModel::generative
                                                : SentenceModel::other;
}

bool fits_task(SentenceModel model, const fs::path& adapter) {
  const nlohmann::json config = io::read_json(member_of(adapter, kAdapterConfigFile));
  const nlohmann::json task = config.is_object() ? config.value("task_type", nlohmann::json()) : nlohmann::json();
  switch (model) {
    case SentenceModel::none:
      return false;
    case SentenceModel::embedding:
      return task.is_null() || task == "FEATURE_EXTRACTION";
    case SentenceModel::generative:
      return task == "CAUSAL_LM";
    case SentenceModel::other:
      return task == "SEQ_CLS";
  }
  return false;
}

fs::path sentence_folder(const fs::path& base, const fs::path& adapter) {
  if (!adapter.empty() && sentence_model(adapter) != SentenceModel::none) return adapter;
  const SentenceModel model = sentence_model(base);
  if (model == SentenceModel::none) return {};
  if (adapter.empty() || fits_task(model, adapter)) return base;
  log::warn_once(fmt::format("'{}' is not used: by its adapter_config.json the adapter '{}' was trained for another task",
                             (base / kModulesFile).string(), adapter.string()));
  return {};
}

void copy_sentence_files(io::Storage& storage, const fs::path& from, const fs::path& to) {
  const std::vector<SentenceModule> modules = sentence_modules(from);
  if (modules.empty()) return;
  for (const char* name : {kModulesFile, kSentenceSettingsFile, kSentenceTransformerFile})
    if (fs::exists(from / name)) io::copy_file(storage, member_of(from, name), to / name);
  for (const SentenceModule& module : modules) {
    if (module.folder.empty()) continue;
    require(!fs::is_symlink(from / module.folder), "'{}' is a link to a folder: put the folder itself there",
            (from / module.folder).string());
    copy_folder(storage, from / module.folder, to / module.folder);
  }
}

}  // namespace qft::model
