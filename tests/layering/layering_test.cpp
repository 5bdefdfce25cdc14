// Checks every #include "qft/<module>/..." against the tables that CMake wrote from src/, apps/ and data_tools/CMakeLists.txt.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "test_paths.h"
#include <gtest/gtest.h>

namespace fs = std::filesystem;

using qft::test::kBinaryDir;
using qft::test::kSourceDir;

namespace {

/// A module, or the programs in a folder.
struct Row {
  std::vector<fs::path> folders;
  std::set<std::string> allowed;
};
using Table = std::map<std::string, Row>;

/// Reads lines "module NAME: DEPS..." and "program FOLDER: DEPS...".
Table read_table() {
  const fs::path source = kSourceDir;
  std::ifstream in(std::string(kBinaryDir) + "/modules.txt");
  Table table;
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream head(line.substr(0, colon)), deps(line.substr(colon + 1));
    std::string kind, name;
    head >> kind >> name;
    Row& row = table[name];
    row.folders = kind == "module" ? std::vector<fs::path>{source / "include/qft" / name, source / "src" / name}
                                   : std::vector<fs::path>{source / name};
    for (std::string dep; deps >> dep;) row.allowed.insert(dep);
  }
  return table;
}

bool has_own_row(const Table& table, const fs::path& folder) {
  return std::any_of(table.begin(), table.end(), [&](const auto& entry) {
    return std::find(entry.second.folders.begin(), entry.second.folders.end(), folder) != entry.second.folders.end();
  });
}

/// Collects the modules included by a folder's files, each with its first place; skips subfolders that have their own row.
void collect(const Table& table, const fs::path& folder, std::map<std::string, std::string>& used) {
  static const std::regex include(R"re(^\s*#\s*include\s*[<"]qft/([a-z]+)/)re");
  if (!fs::exists(folder)) return;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->is_directory() && has_own_row(table, entry->path())) entry.disable_recursion_pending();
    if (!entry->is_regular_file()) continue;
    std::ifstream in(entry->path());
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      std::smatch match;
      if (std::regex_search(line, match, include)) used.emplace(match[1], entry->path().string() + ":" + std::to_string(number));
    }
  }
}

bool reaches(const Table& table, const std::string& from, const std::string& to, std::set<std::string>& seen) {
  for (const auto& dep : table.at(from).allowed) {
    if (dep == to) return true;
    if (seen.insert(dep).second && reaches(table, dep, to, seen)) return true;
  }
  return false;
}

}  // namespace

TEST(Layering, IncludesAreThoseOfTheTable) {
  const Table table = read_table();
  ASSERT_GE(table.size(), 10U);
  for (const auto& [name, row] : table) {
    std::map<std::string, std::string> used;
    for (const fs::path& folder : row.folders) collect(table, folder, used);
    used.erase(name);
    for (const auto& [module, place] : used)
      EXPECT_TRUE(row.allowed.contains(module))
          << place << ": '" << name << "' includes module '" << module << "', which its DEPS do not name";
    for (const std::string& module : row.allowed)
      EXPECT_TRUE(used.contains(module)) << "the DEPS of '" << name << "' name module '" << module
                                         << "', but none of its files includes it: remove it";
  }
}

TEST(Layering, TableHasNoCycle) {
  const Table table = read_table();
  for (const auto& [name, row] : table) {
    for (const auto& dep : row.allowed) ASSERT_TRUE(table.contains(dep)) << name << " names unknown module " << dep;
    std::set<std::string> seen;
    EXPECT_FALSE(reaches(table, name, name, seen)) << name << " depends on itself";
  }
}

TEST(Layering, EveryFolderIsInTheTable) {
  const Table table = read_table();
  for (const char* root : {"include/qft", "src"})
    for (const auto& entry : fs::directory_iterator(fs::path(kSourceDir) / root)) {
      if (!entry.is_directory()) continue;
      EXPECT_TRUE(table.contains(entry.path().filename().string())) << entry.path() << " is not a module in the table";
    }
  for (const char* folder : {"apps", "data_tools"}) EXPECT_TRUE(table.contains(folder)) << folder;
}
