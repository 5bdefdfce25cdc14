#include "qft/selftest/selftest.h"

#include "qft/core/activity.h"
#include "qft/core/units.h"

#include <algorithm>

#include "runner.h"
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::selftest {
namespace {

constexpr const char* kColumns = "{:<11} {:<24} {:<44} {:>8} {:>8}  {}\n";

std::string number(const Row& row, double value) {
  return row.limit == 0 ? "" : fmt::format("{:.1e}", value);
}

/// JSON has no infinity.
nlohmann::json json_number(double value) {
  return value <= std::numeric_limits<double>::max() ? nlohmann::json(value) : nlohmann::json("inf");
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::skipped:
      return "skipped";
    default:
      return "FAILED";
  }
}

std::int64_t Report::count(Verdict verdict) const {
  return std::ranges::count(rows, verdict, &Row::verdict);
}

std::string Report::summary() const {
  const auto failed = count(Verdict::failed), skipped = count(Verdict::skipped);
  const auto all = static_cast<std::int64_t>(rows.size());
  const std::string where = fmt::format("on {}{}, {}, {:.0f} s", count_noun(ranks, "rank"),
                                        nodes > 1 ? fmt::format(" of {} nodes", nodes) : "", device, seconds);
  const std::string left_out = skipped > 0 ? fmt::format(" ({} skipped)", skipped) : "";
  if (failed > 0) return fmt::format("selftest FAILED: {} of {} checks{} {}", failed, all, left_out, where);
  return fmt::format("selftest passed: {} checks{} {}", all - skipped, left_out, where);
}

std::string header() {
  return fmt::format(fmt::runtime(kColumns), "group", "what", "case", "error", "limit", "verdict");
}

std::string to_text(const Row& row) {
  std::string text =
      fmt::format(fmt::runtime(kColumns), row.group, row.what, row.setting, number(row, row.error), number(row, row.limit),
                  row.verdict == Verdict::skipped ? fmt::format("skipped: {}", row.why) : std::string(name_of(row.verdict)));
  for (const RankFailure& f : row.failures) text += fmt::format("    rank {} ({}): {}\n", f.rank, f.host, f.text);
  if (row.verdict == Verdict::failed) text += fmt::format("    means: {}\n    next:  {}\n", row.meaning, row.advice);
  return text;
}

nlohmann::json to_json(const Report& report) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Row& row : report.rows) {
    nlohmann::json one = {{"group", row.group}, {"what", row.what}, {"case", row.setting}, {"verdict", name_of(row.verdict)}};
    if (row.limit > 0) one["error"] = json_number(row.error), one["limit"] = row.limit;
    if (row.verdict == Verdict::skipped) one["why"] = row.why;
    if (row.verdict == Verdict::failed) {
      one["meaning"] = row.meaning;
      one["next"] = row.advice;
      for (const RankFailure& f : row.failures) one["ranks"].push_back({{"rank", f.rank}, {"host", f.host}, {"text", f.text}});
    }
    checks.push_back(std::move(one));
  }
  return {{"passed", report.passed()},
          {"failed", report.count(Verdict::failed)},
          {"skipped", report.count(Verdict::skipped)},
          {"ranks", report.ranks},
          {"nodes", report.nodes},
          {"device", report.device},
          {"seconds", report.seconds},
          {"summary", report.summary()},
          {"checks", std::move(checks)}};
}

Report run(comm::Session& session, const Options& options) {
  const at::NoGradGuard no_gradients;
  Runner runner(session, options);
  struct Group {
    const char* name;
    void (*check)(Runner&);
  };
  constexpr Group kGroups[] = {{"copies", check_copies},     {"kernels", check_kernels},     {"optimizers", check_optimizers},
                               {"products", check_products}, {"attention", check_attention}, {"collectives", check_collectives},
                               {"steps", check_steps},       {"decoding", check_decoding}};
  for (const Group& group : kGroups) {
    const activity::Phase phase(group.name);
    group.check(runner);
  }
  return runner.finish();
}

}  // namespace qft::selftest
