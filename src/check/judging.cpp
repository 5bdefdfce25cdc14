#include "qft/core/error.h"

#include <algorithm>
#include <set>

#include "probe.h"
#include <fmt/ranges.h>

namespace qft::check {
namespace {

constexpr std::size_t kMostNames = 12;

std::string text_of(const Json& value) {
  if (value.is_null() || value == "") return "nothing";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void compare(const Facts& facts, Judgement& out, void (Judgement::*tell)(std::string, std::span<const int>, std::string)) {
  const Groups groups = group(facts.all(), [&](int rank) { return text_of(facts.at(rank, out.probe().fact)); });
  if (groups.size() == 1)
    out.fine(groups.front().first);
  else
    (out.*tell)(describe(facts, groups), minority(groups), {});
}

}  // namespace

int Facts::nodes() const {
  int last = -1;
  for (const Place& place : places) last = std::max(last, place.node);
  return last + 1;
}

std::vector<int> Facts::all() const {
  std::vector<int> ranks(places.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  return ranks;
}

std::vector<int> Facts::leaders() const {
  std::vector<int> ranks;
  for (const int rank : all())
    if (places[static_cast<std::size_t>(rank)].local_rank == 0) ranks.push_back(rank);
  return ranks;
}

std::string Facts::where(std::span<const int> ranks) const {
  std::map<int, int> sizes, chosen;
  for (const Place& place : places) ++sizes[place.node];
  std::vector<std::string> names;
  std::set<int> leaders_only;
  for (const int rank : ranks) ++chosen[places.at(static_cast<std::size_t>(rank)).node];
  std::set<int> told;
  for (const int rank : ranks) {
    const Place& place = places[static_cast<std::size_t>(rank)];
    // A first local rank stands for its node.
    const bool whole = chosen[place.node] == sizes[place.node] || (chosen[place.node] == 1 && place.local_rank == 0);
    if (!whole)
      names.push_back(fmt::format("rank {} ({})", rank, place.host));
    else if (told.insert(place.node).second)
      names.push_back(place.host);
  }
  if (nodes() > 1 && static_cast<int>(told.size()) == nodes()) return "all nodes";
  const std::size_t more = names.size() > kMostNames ? names.size() - kMostNames : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

std::vector<std::string> Facts::hosts(std::span<const int> ranks) const {
  std::vector<std::string> names;
  for (const int rank : ranks) {
    const std::string& host = places.at(static_cast<std::size_t>(rank)).host;
    if (std::find(names.begin(), names.end(), host) == names.end()) names.push_back(host);
  }
  return names;
}

void Judgement::add(Level level, std::string text, std::span<const int> ranks, std::string remedy) {
  if (remedy.empty() && level != Level::fine) remedy = probe_.remedy;
  auto hosts = facts_.hosts(ranks);
  if (hosts.size() == facts_.hosts(facts_.all()).size()) hosts.clear();
  verdicts_.push_back({level, probe_.name, std::move(text), std::move(remedy), std::move(hosts)});
}

void Judgement::fine(std::string text) {
  add(Level::fine, std::move(text), {}, {});
}
void Judgement::warn(std::string text, std::span<const int> ranks, std::string remedy) {
  add(Level::warning, std::move(text), ranks, std::move(remedy));
}
void Judgement::fail(std::string text, std::span<const int> ranks, std::string remedy) {
  add(Level::problem, std::move(text), ranks, std::move(remedy));
}

std::string describe(const Facts& facts, const Groups& groups) {
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : groups) parts.push_back(fmt::format("{} on {}", value, facts.where(ranks)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<int> minority(const Groups& groups) {
  std::size_t all = 0;
  for (const auto& [value, ranks] : groups) all += ranks.size();
  std::vector<int> others;
  bool majority = false;
  for (const auto& [value, ranks] : groups) {
    if (2 * ranks.size() > all)
      majority = true;
    else
      others.insert(others.end(), ranks.begin(), ranks.end());
  }
  std::sort(others.begin(), others.end());
  return majority ? others : std::vector<int>{};
}

void judge_equal(const Facts& facts, Judgement& out) {
  compare(facts, out, &Judgement::fail);
}
void judge_alike(const Facts& facts, Judgement& out) {
  compare(facts, out, &Judgement::warn);
}

}  // namespace qft::check
