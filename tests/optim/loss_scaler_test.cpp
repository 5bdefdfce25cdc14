#include "qft/optim/loss_scaler.h"

#include "qft/core/error.h"

#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::optim {
namespace {

/// Returns the scale after each step: '.' finite, 'x' overflow.
std::vector<double> run(LossScaler& scaler, std::string_view steps) {
  std::vector<double> scales;
  for (const char step : steps) {
    scaler.update(step == '.');
    scales.push_back(scaler.scale());
  }
  return scales;
}

std::vector<double> run(const LossScalerOptions& options, std::string_view steps) {
  LossScaler scaler(options);
  return run(scaler, steps);
}

using Scales = std::vector<double>;

TEST(LossScaler, HalvesOnOverflowAndDoublesAfterAWindow) {
  EXPECT_EQ(LossScaler({.initial_power = 10}).scale(), 1024.0);
  EXPECT_EQ(run({.initial_power = 3, .window = 3, .hysteresis = 1}, "..x...."), (Scales{8, 8, 4, 4, 4, 8, 8}));
  // The first window counts from one step before the first.
  EXPECT_EQ(run({.initial_power = 3, .window = 3, .hysteresis = 1}, "......"), (Scales{8, 8, 16, 16, 16, 32}));
}

TEST(LossScaler, HysteresisForgivesOverflows) {
  EXPECT_EQ(run({.initial_power = 4, .window = 100, .hysteresis = 3}, "x.x.x.x"), (Scales{16, 16, 16, 16, 8, 8, 4}));
  // The count restarts with each window, or with each finite step.
  EXPECT_EQ(run({.initial_power = 4, .window = 2, .hysteresis = 2}, "x..x.x"), (Scales{16, 16, 32, 32, 32, 16}));
  EXPECT_EQ(run({.initial_power = 4, .window = 100, .hysteresis = 2, .consecutive_hysteresis = true}, "x.x.xx"),
            (Scales{16, 16, 16, 16, 16, 8}));
}

TEST(LossScaler, StaysAboveItsMinimumAndGivesUpThere) {
  LossScaler scaler({.initial_power = 2, .hysteresis = 1, .min_loss_scale = 2.0});
  EXPECT_EQ(run(scaler, "xxx"), (Scales{2, 2, 2}));
  EXPECT_THROW(run(scaler, std::string(200, 'x')), Error);
  LossScaler high({.initial_power = 300, .hysteresis = 1});
  EXPECT_NO_THROW(run(high, std::string(200, 'x'))) << "it is on its way down";
}

TEST(LossScaler, AFixedScaleIsFixed) {
  EXPECT_EQ(run({.loss_scale = 128.0}, "xx..x"), (Scales(5, 128.0)));
  LossScaler none;
  EXPECT_EQ(run(none, "x."), (Scales{1, 1}));
}

TEST(LossScaler, GoesOnFromItsState) {
  const LossScalerOptions options{.initial_power = 6, .window = 4, .hysteresis = 2};
  const std::string_view steps = "x..x.x....x.xx....";
  LossScaler whole(options);
  const Scales expected = run(whole, steps);
  for (std::size_t cut = 0; cut <= steps.size(); ++cut) {
    LossScaler first(options), second(options);
    Scales got = run(first, steps.substr(0, cut));
    second.from_json(nlohmann::json::parse(first.to_json().dump()));
    for (const double scale : run(second, steps.substr(cut))) got.push_back(scale);
    EXPECT_EQ(got, expected) << cut;
  }
}

}  // namespace
}  // namespace qft::optim
