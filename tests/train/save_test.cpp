// Tests a checkpoint of a model on a device: copies to the host and back use pinned memory and keep all bits.
#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/selftest/small_run.h"
#include "qft/train/snapshot.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "io/temp_dir.h"
#include "sim/pageable.h"
#include "sim/sim.h"
#include "support/world.h"
#include <gtest/gtest.h>

namespace qft::train {
namespace {

namespace fs = std::filesystem;

struct Way {
  bool lora, staged;
  const char* strategy;
  optim::Precision precision = optim::Precision::bf16();
};

class Save : public testing::TestWithParam<Way> {};

TEST_P(Save, CrossesPinnedMemoryAndChangesNoBit) {
  const Way& way = GetParam();
  const c10::Device device = comm::choose_device(comm::Session::current(), "sim");
  std::unique_ptr<test::TempDir> own;
  if (world().rank() == 0) own = std::make_unique<test::TempDir>();
  const fs::path dir = comm::broadcast_string(world(), own ? own->path().string() : "");

  selftest::SmallRun run({.lora = way.lora, .strategy = way.strategy, .precision = way.precision}, world(), device);
  run.step(1, 3);
  const std::vector<double> saved = run.weights();
  config::RunConfig config;
  config.training.output_dir = (dir / "out").string();
  config.model.model_name_or_path = dir.string();
  SnapshotInfo info;
  info.progression.step = 1;
  info.run = {std::string(32, 'a'), 1, {}};
  std::unique_ptr<RunLog> log;
  if (world().rank() == 0) {
    fs::create_directories(dir / "out");
    std::ofstream(dir / "config.json") << R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 64})";
    log = std::make_unique<RunLog>(dir / "out", 0);
  }
  world().barrier();

  const std::int64_t before = sim::pageable_bytes();
  SnapshotSave save(config, run.instance(), world(), info, log.get(), way.staged);
  EXPECT_EQ(sim::pageable_bytes(), before) << "bytes";
  run.step(2, 3);  // with `staged` the checkpoint has its own copy
  const fs::path checkpoint = save.commit();
  EXPECT_NE(run.weights(), saved);
  run.step(3, 3);  // its weights may still be in flight to the other ranks

  const std::int64_t before_load = sim::pageable_bytes();
  load_snapshot(checkpoint::SharedCheckpoint(world(), checkpoint), run.instance());
  EXPECT_EQ(sim::pageable_bytes(), before_load) << "bytes";
  EXPECT_EQ(run.weights(), saved);
  EXPECT_TRUE(fs::exists(checkpoint / (way.lora ? "adapter_model.safetensors" : "model.safetensors")) || world().rank() != 0);
  EXPECT_EQ(sim::errors(), std::vector<std::string>{});
  world().barrier();
}

/// Offloaded tensors are copied while the device computes; copies of unpinned memory would wait for it.
TEST(Offload, CrossesPinnedMemory) {
  const c10::Device device = comm::choose_device(comm::Session::current(), "sim");
  const auto pageable = [&](const selftest::SmallCase& small) {
    selftest::SmallRun run(small, world(), device);
    run.step(0, 3);
    const std::int64_t before = sim::pageable_bytes();
    run.step(1, 3);
    return sim::pageable_bytes() - before;
  };
  constexpr std::int64_t kSums = 64;  // of the loss: 8 a micro-batch
  EXPECT_LE(pageable({.recompute = true, .strategy = "zero3", .offload = {true, true, true}}), kSums);
  EXPECT_LE(pageable({.strategy = "zero3", .offload = {true, false, false}, .precision = optim::Precision::bf16()}), kSums);
}

INSTANTIATE_TEST_SUITE_P(Ways, Save,
                         testing::Values(Way{true, true, "ddp"}, Way{true, false, "zero3"}, Way{false, true, "zero3"},
                                         // The masters are the weights, which are gathered after a step.
                                         Way{false, false, "ddp"}, Way{false, false, "zero2", optim::Precision::fp32()}));

}  // namespace
}  // namespace qft::train
