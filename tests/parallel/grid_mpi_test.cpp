// Every layout gives the numbers of one rank: loss, metrics, norm, every gradient by name and element, weights, saved files byte
// for byte; and a checkpoint after the first step continues under the next layout of the list.
#include "qft/comm/session.h"
#include "qft/core/clock.h"
#include "qft/core/log.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "grid.h"
#include "support/device_under_test.h"
#include "support/world.h"
#include <gtest/gtest.h>

namespace qft::parallel::grid {
namespace {

namespace fs = std::filesystem;

/// Relative to the number, and for gradients to the tensor's norm.
constexpr double kTolerance = 1e-10;
/// Adam divides by the root of the second moment: an element with a nearly zero gradient amplifies rounding.
constexpr double kWeightTolerance = 1e-7;
/// Gradients of a tensor are compared with at least this part of the norm of all gradients: smaller ones are rounding.
constexpr double kLeastNorm = 1e-6;

/// The largest deviation of a kind, and the case that has it.
struct Worst {
  double error = 0.0;
  std::string where = "none";
};

double norm_of(std::span<const double> values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

double most_apart(std::span<const double> a, std::span<const double> b) {
  double most = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::isnan(a[i] - b[i]) ? HUGE_VAL : std::max(most, std::abs(a[i] - b[i]));
  return most;
}

class Grid {
 public:
  /// `numbers_only`: without files and checkpoints.
  Grid(const std::vector<Entry>& list, comm::Communicator& world, bool numbers_only)
      : list_(list), world_(world), numbers_only_(numbers_only), files_(world), oracles_(oracles(list, world, files_)) {}

  void compare(const Entry& entry) {
    const Oracle& want = oracles_.at({entry.first.model->name, entry.first.task->name});
    const fs::path folder = files_.empty_folder();
    fs::path checkpoint;
    where_ = name_of(entry.first);
    timed([&] {
      Run run(entry.first, world_, files_, test::device_under_test());
      const auto tensors = run.tensors();
      for (int s = 0; s < kSteps; ++s) {
        expect_step(run.step(), want.steps[static_cast<std::size_t>(s)], tensors);
        if (s == 0 && !numbers_only_) checkpoint = run.save_checkpoint(folder);
      }
      expect_end(run, want);
    });
    if (numbers_only_) return;
    where_ = fmt::format("{}, which continues {}", name_of(entry.second), name_of(entry.first));
    timed([&] {
      Run run(entry.second, world_, files_, test::device_under_test());
      run.load_checkpoint(checkpoint);
      run.seek(1);
      expect_step(run.step(), want.steps[1], run.tensors());
      expect_end(run, want);
    });
  }

  /// Prints the first case that fails, for scripts/nightly_mutations.py.
  void note_failure(bool threw = false) {
    if (failed_ || !(threw || testing::Test::HasFailure())) return;
    failed_ = true;
    if (world_.rank() != 0) return;
    std::printf("grid: first failing case: %s\n", where_.c_str());
    std::fflush(stdout);
  }
  bool failed() const { return failed_; }

  void report() {
    if (world_.rank() != 0) return;
    std::ranges::sort(seconds_, std::greater());
    std::printf("grid: %zu cases of %zu layouts x %zu models x %zu tasks on %d ranks\n", seconds_.size(),
                count([](const Case& c) { return static_cast<const void*>(c.layout); }),
                count([](const Case& c) { return static_cast<const void*>(c.model); }),
                count([](const Case& c) { return static_cast<const void*>(c.task); }), world_.size());
    for (const auto& [kind, worst] : worst_)
      std::printf("grid: worst %-8s %.1e  %s\n", kind.c_str(), worst.error, worst.where.c_str());
    for (std::size_t i = 0; i < std::min<std::size_t>(3, seconds_.size()); ++i)
      std::printf("grid: slow  %.2f s  %s\n", seconds_[i].first, seconds_[i].second.c_str());
    std::fflush(stdout);
  }

 private:
  template <class Of>
  std::size_t count(const Of& of) const {
    std::vector<const void*> all;
    for (const Entry& entry : list_)
      for (const Case* c : {&entry.first, &entry.second}) all.push_back(of(*c));
    std::ranges::sort(all);
    return static_cast<std::size_t>(std::ranges::unique(all).begin() - all.begin());
  }

  template <class Body>
  void timed(const Body& body) {
    const double started = steady_seconds();
    body();
    note_failure();
    seconds_.emplace_back(steady_seconds() - started, where_);
  }

  /// Notes a deviation; expects that it is within `tolerance`.
  void expect(const std::string& kind, double error, double tolerance, const std::string& what) {
    Worst& worst = worst_[kind];
    if (!(error <= worst.error)) worst = {error, where_ + (what.empty() ? "" : ": " + what)};
    EXPECT_LE(error, tolerance) << kind << " " << what << " of " << where_;
  }

  void expect_step(const StepNumbers& got, const StepNumbers& want,
                   const std::vector<std::pair<std::string, std::int64_t>>& tensors) {
    expect("loss", std::abs(got.loss - want.loss) / std::abs(want.loss), kTolerance, "");
    ASSERT_EQ(got.metrics.size(), want.metrics.size()) << where_;
    for (const auto& [name, value] : want.metrics)
      expect("metric", std::abs(got.metrics.at(name) - value) / std::max(1e-3, std::abs(value)), kTolerance, name);
    ASSERT_EQ(got.grads.size(), want.grads.size()) << where_;
    const double norm = norm_of(want.grads);
    ASSERT_GT(norm, 0.0) << where_;
    std::size_t first = 0;
    for (const auto& [name, elements] : tensors) {
      const auto count = static_cast<std::size_t>(elements);
      const auto ours = std::span(got.grads).subspan(first, count), theirs = std::span(want.grads).subspan(first, count);
      expect("gradient", most_apart(ours, theirs) / std::max(norm_of(theirs), kLeastNorm * norm), kTolerance, name);
      first += count;
    }
    EXPECT_EQ(first, got.grads.size());
    expect("norm", std::abs(got.norm - want.norm) / want.norm, kTolerance, "");
    expect("norm", std::abs(want.norm - norm) / norm, kTolerance, "of the gradients");
  }

  void expect_weights(const std::vector<double>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size()) << where_;
    expect("weight", most_apart(got, want), kWeightTolerance, "");
  }

  /// Compares weights and saved files.
  void expect_end(Run& run, const Oracle& want) {
    expect_weights(run.weights(), want.weights);
    if (numbers_only_) return;
    const fs::path saved = files_.empty_folder();
    run.set_weights(want.weights);
    run.save(saved);
    expect_files(saved, want.files);
  }

  void expect_files(const fs::path& folder, const std::map<std::string, std::string>& want) {
    world_.barrier();
    const auto got = read_files(folder);
    ASSERT_EQ(got.size(), want.size()) << where_;
    for (const auto& [name, bytes] : want) EXPECT_TRUE(got.contains(name) && got.at(name) == bytes) << name << " of " << where_;
  }

  const std::vector<Entry>& list_;
  comm::Communicator& world_;
  bool numbers_only_;
  Files files_;
  std::map<std::pair<std::string_view, std::string_view>, Oracle> oracles_;
  std::string where_;
  bool failed_ = false;
  std::map<std::string, Worst> worst_;
  std::vector<std::pair<double, std::string>> seconds_;
};

/// QFT_GRID=all: every case that suits these ranks, not only their part of the cover; first: ends with the first case that fails;
/// numbers: compares no files and no resumed runs.
/// QFT_GRID_ONLY=TEXT: only entries whose first case has TEXT in its name.
bool wishes(std::string_view wish) {
  const char* grid = std::getenv("QFT_GRID");
  return grid != nullptr && std::string_view(grid).find(wish) != std::string_view::npos;
}

TEST(Grid, EveryLayoutGivesTheNumbersOfOneRank) {
  log::init({.level = log::Severity::error, .rank = world().rank(), .world_size = world().size()});
  std::vector<Entry> list = entries(world().size(), wishes("all"));
  if (const char* only = std::getenv("QFT_GRID_ONLY"))
    std::erase_if(list, [&](const Entry& entry) { return name_of(entry.first).find(only) == std::string::npos; });
  ASSERT_FALSE(list.empty());
  Grid grid(list, world(), wishes("numbers"));
  for (const Entry& entry : list) {
    if (grid.failed() && wishes("first")) break;
    try {
      grid.compare(entry);
    } catch (const std::exception&) {
      grid.note_failure(/*threw=*/true);
      throw;
    }
  }
  grid.report();
}

}  // namespace
}  // namespace qft::parallel::grid
