// Probes that need the run file's settings or compute something: the self-test, the run itself, space for its checkpoints.
#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/selftest/selftest.h"

#include <algorithm>

#include "outputs.h"
#include "probe.h"

namespace qft::check {
namespace {

std::string size_text(std::int64_t n) {
  return format_bytes(static_cast<double>(n));
}

}  // namespace

Json gather_selftest(Context& context) {
  const auto report =
      selftest::run(context.session, {.device = context.options.device, .only = std::string(selftest::kShortForm)});
  Json failed = Json::array();
  for (const auto& row : report.rows)
    for (const auto& failure : row.failures)
      if (failure.rank == context.session.rank()) failed.push_back(fmt::format("{}: {}", row.name(), failure.text));
  return {{"summary", report.summary()}, {"failed", failed}};
}

void judge_selftest(const Facts& facts, Judgement& out) {
  std::vector<int> bad;
  for (const int rank : facts.all())
    if (!facts.at(rank, "failed").empty()) bad.push_back(rank);
  const Groups groups = group(bad, [&](int rank) {
    const Json& failed = facts.at(rank, "failed");
    return fmt::format("{} checks; the first is {}", failed.size(), failed.front().get<std::string>());
  });
  if (bad.empty())
    out.fine(facts.at(0, "summary"));
  else
    out.fail(fmt::format("failed: {}", describe(facts, groups)), bad);
}

Json gather_run(Context& context) {
  if (!context.options.run || context.failed.count("files") > 0) return {{"lines", Json::array()}, {"refusal", ""}};
  try {
    context.forecast = context.options.run();
    return {{"lines", context.forecast.lines}, {"refusal", ""}};
  } catch (const Error& e) {  // the same on all ranks
    context.refusal = std::current_exception();
    return {{"lines", Json::array()}, {"refusal", e.what()}};
  }
}

void judge_layout(const Facts& facts, Judgement& out) {
  if (!facts.options.layout.empty()) out.fine(facts.options.layout);
}

void judge_run(const Facts& facts, Judgement& out) {
  if (const std::string refusal = facts.at(0, "refusal"); !refusal.empty()) return out.fail(refusal);
  if (facts.options.run && facts.failed.count("files") > 0)
    return out.warn("not checked, because its files have problems", {},
                    "correct them and check again: template, LoRA targets, memory and the resume point are checked then");
  for (const Json& line : facts.at(0, "lines")) out.fine(line);
}

Json gather_space(Context& context) {
  Json outputs = Json::array();
  for (const NeededPath& needed : context.options.paths) {
    if (needed.use != NeededPath::Use::write) continue;
    const auto folder = existing_folder(needed.path);
    outputs.push_back({{"folder", folder.string()}, {"free", room_in(folder).bytes}});
  }
  const RunForecast& f = context.forecast;
  return {{"outputs", outputs}, {"checkpoint", f.checkpoint_bytes}, {"checkpoints", f.checkpoints}, {"result", f.result_bytes}};
}

void judge_space(const Facts& facts, Judgement& out) {
  const std::int64_t each = facts.at(0, "checkpoint"), count = facts.at(0, "checkpoints"), result = facts.at(0, "result");
  const std::int64_t needed = each * count + result;
  if (needed == 0) return;
  for (std::size_t i = 0; i < facts.at(0, "outputs").size(); ++i) {
    // Rank 0's disk holds whole checkpoints. If other ranks have a separate disk, it only holds their parts while they are
    // written.
    const std::int64_t room = facts.at(0, "outputs").at(i).at("free");
    const auto text =
        fmt::format("{} of {} and the result of {} are {}; '{}' on {} has {} free", count_noun(count, "checkpoint"),
                    size_text(each), size_text(result), size_text(needed),
                    facts.at(0, "outputs").at(i).at("folder").get<std::string>(), facts.places.front().host, size_text(room));
    if (room >= 0 && room < needed)
      out.fail(text);
    else
      out.fine(text);
    std::vector<int> low;
    for (const int rank : facts.leaders())
      if (const std::int64_t there = facts.at(rank, "outputs").at(i).at("free");
          rank != 0 && there >= 0 && there < std::min(each, needed) / facts.nodes())
        low.push_back(rank);
    if (!low.empty() && room >= needed)
      out.fail(fmt::format("{} has too little for its part of a checkpoint of {}", facts.where(low), size_text(each)), low);
  }
}

}  // namespace qft::check
