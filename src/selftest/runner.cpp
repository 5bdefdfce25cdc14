#include "runner.h"

#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/stream.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>

namespace qft::selftest {
namespace {

/// Half a unit in the last place is at most 1.1e-16, 6e-8, 4.9e-4 and 3.9e-3 of a value.
constexpr Limits kLimits[] = {{at::kDouble, 1e-12, 1e-12, 1e-10, 1e-9},
                              {at::kFloat, 2e-6, 1e-5, 1e-5, 1e-4},
                              {at::kHalf, 1e-3, 2e-3, 1e-2, 3e-2},
                              {at::kBFloat16, 6e-3, 1.5e-2, 5e-2, 0.1}};
constexpr double kOneElement = 8.0;  // allowed error of a single element, relative to the whole
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostRanks = 8;  // ranks reported for a failed check

struct Skipped {
  std::string why;
};

std::vector<at::ScalarType> dtypes_of(c10::Device device) {
  std::vector<at::ScalarType> types;
  for (const Limits& l : kLimits) {
    if (l.type == at::kBFloat16 && !device.is_cpu() && !device::facts_of(device).bf16) continue;
    try {  // a device may lack fp64
      const at::Tensor sum = at::ones({3}, at::TensorOptions(l.type)).to(device).sum().to(c10::kCPU, at::kDouble);
      if (sum.item<double>() == 3.0) types.push_back(l.type);
    } catch (const std::exception&) {
      if (l.type == at::kFloat) throw;
    }
  }
  return types;
}

std::string described(c10::Device device) {
  return fmt::format("{} ({})", device.is_cpu() ? "cpu" : device::backend_of(device).name(), device::describe(device));
}

}  // namespace

const Limits& limits_of(at::ScalarType type) {
  const auto* found = std::ranges::find(kLimits, type, &Limits::type);
  QFT_ASSERT(found != std::end(kLimits), "no limits for {}", c10::toString(type));
  return *found;
}

std::string_view name_of(at::ScalarType type) {
  if (type == at::kDouble) return "fp64";
  if (type == at::kHalf) return "fp16";
  return type == at::kFloat ? "fp32" : "bf16";
}

void Outcome::compare(std::string_view result, const at::Tensor& actual, const at::Tensor& expected, double limit) {
  at::Tensor a = actual.detach().to(c10::kCPU, at::kDouble, false, /*copy=*/true, at::MemoryFormat::Contiguous);
  const at::Tensor e = expected.detach().to(c10::kCPU, at::kDouble);
  if (tamper_) tamper_(result, a);
  if (a.sizes() != e.sizes()) return fail(fmt::format("{} has {} elements, not {}", result, a.numel(), e.numel()));
  if (e.numel() == 0) return;
  const at::Tensor difference = (a - e).abs();
  const double size = e.norm().item<double>(), rms = size / std::sqrt(static_cast<double>(e.numel()));
  const double whole = difference.norm().item<double>(), worst = (difference / (e.abs() + rms + 1e-300)).max().item<double>();
  const double error = std::max(size > 0 ? whole / size : whole, worst / kOneElement);
  take(result, a.isfinite().all().item<bool>() ? error : kInfinite, limit);
}

void Outcome::compare(std::string_view result, double actual, double expected, double limit) {
  take(result, std::abs(tampered(result, actual) - expected) / (expected != 0 ? std::abs(expected) : 1.0), limit);
}

void Outcome::hold(std::string_view result, bool ok, const std::string& otherwise) {
  if (tampered(result, ok ? 1.0 : 0.0) != 1.0) fail(ok ? fmt::format("{}: a no instead of a yes", result) : otherwise);
}

double Outcome::tampered(std::string_view result, double value) const {
  if (!tamper_) return value;
  at::Tensor values = at::full({1}, value, at::kDouble);
  tamper_(result, values);
  return values.item<double>();
}

void Outcome::judge(std::string_view result, double error, double limit) {
  take(result, tampered(result, error), limit);
}

void Outcome::take(std::string_view result, double error, double limit) {
  if (!std::isfinite(error)) error = kInfinite;
  const auto ratio = [](double e, double l) { return e == 0 ? 0.0 : e / std::max(l, 1e-300); };
  if (limit_ == 0 || ratio(error, limit) > ratio(error_, limit_)) error_ = error, limit_ = limit;
  if (error <= limit) return;
  fail(std::isfinite(error) ? fmt::format("{} is off by {:.1e}, {:.1e} is allowed", result, error, limit)
                            : fmt::format("{} is not finite", result));
}

void Outcome::skip(std::string why) {
  throw Skipped{std::move(why)};
}

void Outcome::fail(const std::string& text) {
  text_ += (text_.empty() ? "" : "; ") + text;
}

Runner::Runner(comm::Session& session, const Options& options)
    : session_(session),
      options_(options),
      group_(session.world().split(0, session.rank(), "selftest")),
      dtypes_(dtypes_of(options.device)),
      start_(steady_seconds()) {
  try {
    only_ = std::regex(options.only, std::regex::icase);
  } catch (const std::regex_error& e) {
    fail_config("--only '{}' is not a regular expression ({}): give a part of a check's name, such as 'attention' or 'zero3'",
                options.only, e.what());
  }
  report_.ranks = session.size();
  report_.nodes = session.node_count();
  report_.device = described(options.device);
}

bool Runner::has(at::ScalarType type) const {
  return std::ranges::find(dtypes_, type) != dtypes_.end();
}

bool Runner::wanted(const Row& row) const {
  return options_.only.empty() || std::regex_search(row.name(), only_);
}

void Runner::check(const Subject& subject, std::string setting, const std::function<void(Outcome&)>& body) {
  Row row;
  row.group = subject.group;
  row.what = subject.what;
  row.setting = std::move(setting);
  if (!wanted(row)) return;
  activity::tick();
  Outcome mine(!options_.tamper ? Outcome::Tamper()
                                : [&](std::string_view result, at::Tensor& values) { options_.tamper(row, result, values); });
  std::string skipped;
  try {
    body(mine);
    device::Stream::current(device()).synchronize();
  } catch (const Skipped& s) {
    skipped = s.why;
  } catch (const std::exception& e) {
    const auto* torch = dynamic_cast<const c10::Error*>(&e);
    mine.fail(fmt::format("it ends with an error: {}", torch != nullptr ? torch->what_without_backtrace() : e.what()));
    // Prints at once: the other ranks may wait for this rank forever.
    if (session_.size() > 1)
      std::fputs(fmt::format("rank {} ({}): {}: {}\n", session_.rank(), session_.hostname(), row.name(), mine.text()).c_str(),
                 stderr);
  }
  merge_outcomes(row, mine, skipped);
  if (row.verdict == Verdict::failed) row.meaning = subject.meaning, row.advice = subject.advice;
  if (options_.on_row) options_.on_row(row);
  report_.rows.push_back(std::move(row));
}

void Runner::merge_outcomes(Row& row, const Outcome& mine, const std::string& skipped) {
  struct Numbers {
    double error, limit, failed, skipped;
  };
  const Numbers own{mine.error(), mine.limit(), mine.text().empty() ? 0.0 : 1.0, skipped.empty() ? 0.0 : 1.0};
  std::vector<Numbers> all(static_cast<std::size_t>(group_->size()));
  group_->all_gather(&own, all.data(), sizeof(Numbers) / sizeof(double), DType::f64);
  for (const Numbers& n : all)
    if (n.limit > 0 && (row.limit == 0 || n.error / n.limit > row.error / row.limit)) row.error = n.error, row.limit = n.limit;
  const bool any_failed = std::ranges::count(all, 1.0, &Numbers::failed) > 0,
             any_skipped = std::ranges::count(all, 1.0, &Numbers::skipped) > 0;
  if (!any_failed && !any_skipped) return;
  row.verdict = any_failed ? Verdict::failed : Verdict::skipped;
  const auto texts = comm::all_gather_strings(*group_, any_failed ? mine.text() : skipped);
  const auto hosts = comm::all_gather_strings(*group_, session_.hostname());
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (any_failed && !texts[r].empty() && row.failures.size() < kMostRanks)
      row.failures.push_back({static_cast<int>(r), hosts[r], texts[r]});
    if (!any_failed && row.why.empty()) row.why = texts[r];
  }
}

Report Runner::finish() {
  if (report_.rows.empty())
    fail_config(
        "--only '{}' matches no check: examples of names are 'kernels/rms_norm forward/bf16, 7 x 97' or 'steps/zero3/...'",
        options_.only);
  report_.seconds = steady_seconds() - start_;
  return std::move(report_);
}

}  // namespace qft::selftest
