#include "forward_pass.h"

namespace qft::eval {

void forward_pass(engine::Instance& instance, loader::EvalLoader& loader, const MakeInputs& inputs,
                  const PassObservers& observers) {
  const auto work = instance.evaluation_list(1, 1);
  const auto idle = instance.evaluation_list(0, 1);
  loader.rewind();
  for (std::int64_t round = 0; round < loader.max_micro_batches(); ++round) {
    const loader::MicroBatch batch = loader.next().value();
    const bool has_work = !batch.tokens.empty();
    const auto made = inputs(std::span(&batch, has_work ? 1 : 0), round);
    at::Tensor kept;
    const auto observe = [&](const parallel::Logprobs& given) {
      if (observers.observe) observers.observe(made.front(), given, round);
      if (observers.values) kept = given.policy.to(at::kCPU, at::kFloat, false, true);
    };
    instance.executor().evaluate(has_work ? work : idle, made, observe, observers.objective);
    if (observers.values) observers.values(batch, kept);
    if (observers.progress) observers.progress(round + 1);
  }
}

}  // namespace qft::eval
