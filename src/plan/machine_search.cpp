// Finds machine descriptions: a file given by path, or a name in a folder of descriptions.
#include "qft/config/fields_file.h"
#include "qft/config/nearest.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/program.h"
#include "qft/plan/machine.h"

#include <map>
#include <set>
#include <string_view>

namespace qft::plan {
namespace {

namespace fs = std::filesystem;

bool is_description(const fs::path& file) {
  return is_yaml_file(file) || is_json_file(file);
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// Returns the end of the name: after the longest prefix that is a file (its path may have commas), else at the first comma.
std::size_t end_of_name(const std::string& asked) {
  for (std::size_t end = asked.size(); end > 0 && end != asked.npos; end = asked.rfind(',', end - 1))
    if (is_file(asked.substr(0, end))) return end;
  return asked.find(',');
}

/// Returns the descriptions by name. Descriptions in $QFT_MACHINES hide others of the same name.
std::map<std::string, fs::path> described_machines() {
  std::map<std::string, fs::path> all;
  for (const fs::path& folder : config_folders("QFT_MACHINES", "machines")) {
    std::error_code error;
    const std::set<fs::path> files(fs::directory_iterator(folder, error), fs::directory_iterator());
    for (const fs::path& file : files)
      if (is_description(file)) all.emplace(file.stem().string(), file);
  }
  return all;
}

fs::path machine_file(const std::string& name) {
  if (name.find('/') != name.npos || is_description(name)) return name;
  const auto all = described_machines();
  if (const auto found = all.find(name); found != all.end()) return found->second;
  if (is_file(name)) return name;
  std::vector<std::string_view> names;
  std::string list;
  for (const auto& [other, file] : all) {
    names.push_back(other);
    list += (list.empty() ? "" : ", ") + other;
  }
  if (all.empty())
    fail_config("--machine {}: share/qft/configs/machines beside the program has no descriptions: give a file's path", name);
  const std::string_view near = config::nearest(name, names);
  fail_config("--machine {}: no machine has that name{} There are {}; a path to a .yaml file works too", name,
              near.empty() ? "." : fmt::format(": did you mean '{}'?", near), list);
}

}  // namespace

Machine find_machine(const std::string& asked) {
  const std::size_t name_end = end_of_name(asked);
  Machine machine = Machine::load(machine_file(asked.substr(0, name_end)));
  const config::Visit visit = [&](const config::FieldVisitor& field) { machine.visit(field); };
  std::string changed;
  for (std::size_t at = name_end; at < asked.size();) {
    const std::size_t end = asked.find(',', at + 1);
    const std::string assignment = asked.substr(at + 1, end == asked.npos ? end : end - at - 1);
    config::set_field(assignment, "--machine " + asked, visit);
    changed += (changed.empty() ? "" : ", ") + assignment;
    std::erase(machine.assumed, assignment.substr(0, assignment.find('=')));
    at = end;
  }
  if (!changed.empty()) machine.name += fmt::format(" ({} by the command line)", changed);
  return machine;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& [name, file] : described_machines()) names.push_back(name);
  return names;
}

std::string list_machines() {
  const auto all = described_machines();
  std::size_t width = 0;
  for (const auto& [name, file] : all) width = std::max(width, name.size());
  std::string text;
  const auto words = [](const fs::path& file) {
    try {
      return Machine::load(file).name;
    } catch (const Error& error) {
      return fmt::format("error: {}", error.what());
    }
  };
  for (const auto& [name, file] : all) text += fmt::format("{:<{}}  {}\n", name, width, words(file));
  return text;
}

}  // namespace qft::plan
