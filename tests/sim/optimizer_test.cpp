// Master weights in host memory: their rounded copies cross to the device while the host continues.
#include "qft/optim/optimizer.h"

#include "qft/device/backends.h"

#include "fixture.h"

namespace qft::sim {
namespace {

TEST_F(Sim, AnUploadIsDoneBeforeItsSourceIsWrittenAgain) {
  constexpr std::int64_t kCount = 5000;
  backend();
  device::load_backends();
  const at::Tensor weights = at::zeros({kCount}, on_device(at::kBFloat16)), gradients = at::ones({kCount}, at::kFloat);
  optim::Optimizer optimizer(optim::rule_of("sgd"), {{"unit", weights, gradients, {{0, kCount}}}}, {}, optim::Precision::bf16());
  std::vector<at::Tensor> seen;  // by work queued after each upload
  for (int step = 0; step < 2; ++step) {
    optimizer.step(/*learning_rate=*/0.5, /*grad_scale=*/1.0);
    seen.push_back(weights.clone());
  }
  optimizer.refresh_copies();
  EXPECT_TRUE(seen[0].to(at::kCPU).eq(-0.5).all().item<bool>());
  EXPECT_TRUE(seen[1].to(at::kCPU).eq(-1.0).all().item<bool>());
}

}  // namespace
}  // namespace qft::sim
