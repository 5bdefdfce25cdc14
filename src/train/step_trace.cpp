#include "step_trace.h"

#include "qft/comm/exchange.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/version.h"
#include "qft/device/stream_trace.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kWriter = "qft";

bool is_our_trace(const fs::path& file) {
  try {
    const json found = io::read_json(file);
    return found.is_object() && found.value("otherData", json::object()).value("writer", "") == kWriter;
  } catch (const std::exception&) {
    return false;
  }
}

std::string text_of(const RankSpans& rank) {
  json spans = json::array();
  for (const trace::Span& span : rank.spans) spans.push_back({span.lane, span.name, span.begin, span.end});
  return json{{"host", rank.host}, {"spans", std::move(spans)}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

RankSpans spans_of(const std::string& text) {
  const json read = json::parse(text);
  RankSpans rank{read.at("host"), {}};
  for (const json& span : read.at("spans")) rank.spans.push_back({span.at(0), span.at(1), span.at(2), span.at(3)});
  return rank;
}

/// Deals the spans of a lane to as few rows as possible in which spans either nest or do not overlap. By row.
std::vector<std::vector<trace::Span>> rows_of(std::vector<trace::Span> spans) {
  std::ranges::sort(spans, [](const auto& a, const auto& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
  struct Row {
    std::vector<trace::Span> spans;
    std::vector<double> open;  ///< ends of the spans around the last one, outermost first
  };
  std::vector<Row> rows;
  for (trace::Span& span : spans) {
    auto row = std::ranges::find_if(rows, [&](Row& r) {
      while (!r.open.empty() && r.open.back() <= span.begin) r.open.pop_back();
      return r.open.empty() || span.end <= r.open.back();
    });
    if (row == rows.end()) row = rows.insert(rows.end(), Row{});
    row->open.push_back(span.end);
    row->spans.push_back(std::move(span));
  }
  std::vector<std::vector<trace::Span>> result;
  for (Row& row : rows) result.push_back(std::move(row.spans));
  return result;
}

ordered_json name_event(const char* kind, int process, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", kind}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

void add_rank(ordered_json& events, int rank, const RankSpans& spans) {
  events.push_back(name_event("process_name", rank, 0, fmt::format("rank {} on {}", rank, spans.host)));
  std::map<std::string, std::vector<trace::Span>> lanes;
  for (const trace::Span& span : spans.spans) lanes[span.lane].push_back(span);
  // The main thread first, the others by name.
  std::vector<std::pair<std::string, std::vector<trace::Span>>> ordered;
  if (auto main = lanes.extract(std::string(trace::kMainThread))) ordered.emplace_back(main.key(), std::move(main.mapped()));
  for (auto& [lane, list] : lanes) ordered.emplace_back(lane, std::move(list));
  int thread = 0;
  for (auto& [lane, list] : ordered) {
    const auto rows = rows_of(std::move(list));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ++thread;
      events.push_back(name_event("thread_name", rank, thread, i == 0 ? lane : fmt::format("{} ({})", lane, i + 1)));
      events.push_back(
          {{"ph", "M"}, {"name", "thread_sort_index"}, {"pid", rank}, {"tid", thread}, {"args", {{"sort_index", thread}}}});
      for (const trace::Span& span : rows[i])
        events.push_back({{"ph", "X"},
                          {"name", span.name},
                          {"cat", lane},
                          {"pid", rank},
                          {"tid", thread},
                          {"ts", span.begin * 1e6},
                          {"dur", std::max(0.0, span.end - span.begin) * 1e6}});
    }
  }
}

}  // namespace

ordered_json trace_json(const std::vector<RankSpans>& ranks, std::int64_t first_step, std::int64_t last_step) {
  ordered_json events = ordered_json::array();
  for (std::size_t r = 0; r < ranks.size(); ++r) add_rank(events, static_cast<int>(r), ranks[r]);
  return {{"otherData", {{"writer", kWriter}, {"version", version()}, {"first_step", first_step}, {"last_step", last_step}}},
          {"displayTimeUnit", "ms"},
          {"traceEvents", std::move(events)}};
}

StepTrace::StepTrace(const config::TrainingArgs& t, std::int64_t total_steps, comm::Session& session, c10::Device device)
    : session_(session), comm_(session.world()), device_(device), file_(t.trace) {
  std::tie(first_, last_) = t.traced_steps().value();
  if (first_ > total_steps)
    fail_config("trace_steps is {}, but the run has {} steps: choose steps from 1 to {}", t.trace_steps, total_steps,
                total_steps);
  if (last_ > total_steps && comm_.rank() == 0)
    log::warn("trace_steps is {}, but the run has {} steps: the trace ends with the run", t.trace_steps, total_steps);
  comm::agreed(comm_, [&] {
    if (comm_.rank() != 0) return;
    if (fs::exists(file_) && !is_our_trace(file_))
      fail_config("trace: '{}' exists and is not a trace of qft: name another file, or remove it", file_.string());
    if (!file_.parent_path().empty()) fs::create_directories(file_.parent_path());
  });
}

void StepTrace::before_step(std::int64_t step) {
  if (origin_ > 0.0 || recorded_ > 0 || step < first_ || step > last_) return;
  first_ = step;
  // The barrier relates the ranks' clocks to each other.
  comm_.host().barrier();
  origin_ = steady_seconds();
  trace::start();
  device::start_stream_trace(device_);
}

void StepTrace::after_step(std::int64_t step) {
  if (origin_ == 0.0) return;
  recorded_ = step;
  if (step >= last_) write();
}

void StepTrace::finish() {
  if (origin_ > 0.0 && recorded_ > 0) write();
}

void StepTrace::write() {
  device::stop_stream_trace();
  RankSpans mine{session_.hostname(), trace::stop()};
  for (trace::Span& span : mine.spans) span.begin -= origin_, span.end -= origin_;
  origin_ = 0.0;
  const std::vector<std::string> texts = comm::all_gather_strings(comm_, text_of(mine));
  if (comm_.rank() != 0) return;
  try {
    std::vector<RankSpans> ranks;
    for (const std::string& text : texts) ranks.push_back(spans_of(text));
    io::atomic_write_file(io::posix_storage(), file_, trace_json(ranks, first_, recorded_).dump() + '\n');
    log::info("trace of steps {} to {}: '{}'; open it at https://ui.perfetto.dev", first_, recorded_, file_.string());
  } catch (const std::exception& error) {  // a full disk must not end a run for a file about it
    log::warn("cannot write the trace '{}': {}", file_.string(), error.what());
  }
}

}  // namespace qft::train
