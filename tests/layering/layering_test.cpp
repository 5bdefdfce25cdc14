// Holds every #include "qft/<module>/..." against the module table that CMake wrote from src/CMakeLists.txt.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "test_paths.h"

namespace fs = std::filesystem;

using qft::test::kBinaryDir;
using qft::test::kSourceDir;

namespace {

std::map<std::string, std::set<std::string>> module_table() {
  std::ifstream in(std::string(kBinaryDir) + "/modules.txt");
  std::map<std::string, std::set<std::string>> table;
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream deps(line.substr(colon + 1));
    auto& row = table[line.substr(0, colon)];
    for (std::string dep; deps >> dep;) row.insert(dep);
  }
  return table;
}

void check_folder(const fs::path& folder, const std::string& module, const std::set<std::string>& allowed) {
  if (!fs::exists(folder)) return;
  static const std::regex include(R"re(^\s*#\s*include\s*[<"]qft/([a-z]+)/)re");
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path());
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) continue;
      const std::string used = match[1];
      EXPECT_TRUE(used == module || allowed.count(used))
          << entry.path().string() << ":" << number << ": module '" << module << "' includes module '" << used
          << "', which its row in src/CMakeLists.txt does not allow";
    }
  }
}

bool reaches(const std::map<std::string, std::set<std::string>>& table, const std::string& from,
             const std::string& to, std::set<std::string>& seen) {
  for (const auto& dep : table.at(from)) {
    if (dep == to) return true;
    if (seen.insert(dep).second && reaches(table, dep, to, seen)) return true;
  }
  return false;
}

}  // namespace

TEST(Layering, IncludesFollowTheModuleTable) {
  const auto table = module_table();
  ASSERT_GE(table.size(), 10u);
  for (const auto& [module, allowed] : table) {
    check_folder(fs::path(kSourceDir) / "include/qft" / module, module, allowed);
    check_folder(fs::path(kSourceDir) / "src" / module, module, allowed);
  }
}

TEST(Layering, TableHasNoCycle) {
  const auto table = module_table();
  for (const auto& [module, deps] : table) {
    for (const auto& dep : deps) ASSERT_TRUE(table.count(dep)) << module << " names unknown module " << dep;
    std::set<std::string> seen;
    EXPECT_FALSE(reaches(table, module, module, seen)) << "module " << module << " depends on itself";
  }
}

TEST(Layering, EveryFolderIsInTheTable) {
  const auto table = module_table();
  for (const char* root : {"include/qft", "src"})
    for (const auto& entry : fs::directory_iterator(fs::path(kSourceDir) / root)) {
      if (!entry.is_directory()) continue;
      EXPECT_TRUE(table.count(entry.path().filename().string())) << entry.path() << " is no module of the table";
    }
}
