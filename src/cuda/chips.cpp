#include "chips.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace qft::cuda {
namespace {

std::string version_text(int chip) {
  return fmt::format("{}.{}", chip / 10, chip % 10);
}

/// Parses "sm_90a", "compute_80".
std::vector<Code> parsed(std::string_view word) {
  Code code;
  for (const auto& [prefix, ptx] : {std::pair{std::string_view("sm_"), false}, {"compute_", true}}) {
    if (!word.starts_with(prefix)) continue;
    const char* const end = word.data() + word.size();
    const auto [rest, error] = std::from_chars(word.data() + prefix.size(), end, code.chip);
    if (error != std::errc()) return {};
    code.ptx = ptx;
    if (rest != end) code.only = *rest;
    return {code};
  }
  return {};
}

}  // namespace

bool Code::runs_on(int other) const {
  if (only == 'a') return other == chip;
  const bool family = chip / 10 == other / 10;
  return other >= chip && (family || (ptx && only == '\0'));
}

std::vector<Code> compiled_code(std::string_view options) {
  constexpr std::string_view kCode = ",code=";  // follows "arch=compute_80"
  std::vector<Code> all;
  for (std::size_t at = options.find(kCode); at != std::string_view::npos; at = options.find(kCode, at)) {
    at += kCode.size();
    std::string_view value = options.substr(at, options.find_first_of("; \n", at) - at);
    while (!value.empty()) {
      const std::size_t end = std::min(value.find_first_of("[],"), value.size());
      const auto code = parsed(value.substr(0, end));
      all.insert(all.end(), code.begin(), code.end());
      value.remove_prefix(std::min(end + 1, value.size()));
    }
  }
  return all;
}

std::string chip_obstacle(int chip, std::string_view owner, std::string_view options) {
  const std::vector<Code> all = compiled_code(options);
  if (all.empty() || std::ranges::any_of(all, [&](const Code& code) { return code.runs_on(chip); })) return {};
  std::vector<std::string> machine, later;
  for (const Code& code : all) (code.ptx ? later : machine).push_back(version_text(code.chip));
  return fmt::format("its compute capability is {}, but {} kernels are compiled for {}{}", version_text(chip), owner,
                     fmt::join(machine, ", "),
                     later.empty() ? "" : fmt::format(" and chips newer than {}", fmt::join(later, ", ")));
}

}  // namespace qft::cuda
