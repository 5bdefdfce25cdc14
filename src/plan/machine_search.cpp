// Where descriptions of machines are looked for: a file given by path, folders of files.
#include "qft/config/fields_file.h"
#include "qft/config/nearest.h"
#include "qft/core/error.h"
#include "qft/core/program.h"
#include "qft/plan/machine.h"

#include <cstdlib>
#include <map>
#include <string_view>

namespace qft::plan {
namespace {

namespace fs = std::filesystem;

bool is_machine_file(const std::string& name) {
  return name.find('/') != name.npos || name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".json");
}

/// By name; those of $QFT_MACHINES hide others of the same name.
std::map<std::string, fs::path> described_machines() {
  std::vector<fs::path> folders;
  if (const char* own = std::getenv("QFT_MACHINES"); own != nullptr && *own != '\0') folders.emplace_back(own);
  if (const fs::path program = program_folder(); !program.empty())
    folders.push_back(program.parent_path() / "share/qft/configs/machines");
  std::map<std::string, fs::path> all;
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
      if (entry.path().extension() == ".yaml") all.emplace(entry.path().stem().string(), entry.path());
  }
  return all;
}

fs::path machine_file(const std::string& name) {
  if (is_machine_file(name)) return name;
  const auto all = described_machines();
  if (const auto found = all.find(name); found != all.end()) return found->second;
  std::vector<std::string_view> names;
  std::string list;
  for (const auto& [other, file] : all) {
    names.push_back(other);
    list += (list.empty() ? "" : ", ") + other;
  }
  if (all.empty())
    fail_config("--machine {}: no descriptions lie in share/qft/configs/machines beside the program: give a file's path", name);
  const std::string_view near = config::nearest(name, names);
  fail_config("--machine {}: no machine has that name{} There are {}; a path to a .yaml file works too", name,
              near.empty() ? "." : fmt::format(": did you mean '{}'?", near), list);
}

}  // namespace

Machine find_machine(const std::string& asked) {
  const std::size_t comma = asked.find(',');
  Machine machine = Machine::load(machine_file(asked.substr(0, comma)));
  const config::Visit visit = [&](const config::FieldVisitor& field) { machine.visit(field); };
  std::string changed;
  for (std::size_t at = comma; at != asked.npos;) {
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

std::string list_machines() {
  const auto all = described_machines();
  std::size_t width = 0;
  for (const auto& [name, file] : all) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, file] : all) text += fmt::format("{:<{}}  {}\n", name, width, Machine::load(file).name);
  return text;
}

}  // namespace qft::plan
