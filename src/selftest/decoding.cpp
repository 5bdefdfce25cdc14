// Checks greedy answers of a small model, and the logits behind them, against the CPU in fp64.
#include "qft/infer/generator.h"
#include "qft/selftest/small_run.h"

#include <vector>

#include "runner.h"

namespace qft::selftest {
namespace {

constexpr Subject kDecoding{
    "decoding", "greedy answers", "qft generate, chat and eval give other answers than the model's",
    "generate with 'use_cpu: true' meanwhile; if lines of attention or products fail too, solve those first"};
constexpr std::int64_t kAnswer = 11, kCapacity = 40;
constexpr std::size_t kSlots = 3;

struct Decoded {
  std::vector<std::vector<std::int32_t>> answers;
  at::Tensor logits;  ///< after the first prompt
};

/// Five prompts of uneven lengths, three at a time.
Decoded decode(const SmallCase& c, comm::Communicator& comm, c10::Device device) {
  SmallRun run(c, comm, device);
  Decoded d;
  std::vector<std::vector<std::int32_t>> prompts;
  for (int p = 0; p < 5; ++p) prompts.push_back(small_tokens(p, 1 + p * 5));
  {
    infer::Decoder alone(run.transformer(), run.reader(), kCapacity, 1);
    d.logits = alone.forward(prompts[1]).clone();
  }
  infer::Decoder decoder(run.transformer(), run.reader(), kCapacity, kSlots);
  std::vector<infer::Request> requests;
  for (std::size_t p = 0; p < prompts.size(); ++p) requests.push_back({prompts[p], kAnswer, p});
  d.answers.resize(prompts.size());
  infer::generate_all(decoder, {.greedy = true}, requests, {},
                      [&](std::size_t i, const infer::Answer& a) { d.answers[i] = a.ids; });
  return d;
}

std::string differences(const Decoded& got, const Decoded& want) {
  for (std::size_t p = 0; p < want.answers.size(); ++p)
    for (std::size_t t = 0; t < want.answers[p].size(); ++t)
      if (t >= got.answers[p].size() || got.answers[p][t] != want.answers[p][t])
        return fmt::format("the answer to prompt {} has token {} at place {}, not {}", p + 1,
                           t < got.answers[p].size() ? std::to_string(got.answers[p][t]) : "none", t + 1, want.answers[p][t]);
  return {};
}

void check_one(Runner& runner, const char* model_type, std::string_view strategy, const optim::Precision& precision) {
  const at::ScalarType type = precision.compute;
  const bool half = type == at::kHalf || type == at::kBFloat16;
  runner.check(kDecoding, fmt::format("{}, {}, {}", name_of(type), model_type, strategy), [&](Outcome& out) {
    SmallCase c{.model_type = model_type, .tied = false, .lora = true};
    if (std::string_view(model_type) == "qwen3") c.sliding_window = 4;
    const auto self = comm::make_self_communicator();
    const Decoded want = decode(c, *self, c10::kCPU);
    c.precision = precision;
    c.strategy = strategy;
    const Decoded got = decode(c, runner.session().world(), runner.device());
    out.compare("the logits", got.logits, want.logits, half ? 2 * limits_of(type).product : limits_of(at::kFloat).product);
    if (half) return;  // near ties may be decided differently
    const std::string different = differences(got, want);
    out.hold("the answers", different.empty(), different);
  });
}

}  // namespace

void check_decoding(Runner& runner) {
  for (const char* model_type : {"qwen2", "qwen3"}) {
    check_one(runner, model_type, "ddp", optim::Precision::fp32());
    if (runner.session().size() > 1) check_one(runner, model_type, "zero3", optim::Precision::fp32());
    if (runner.has(at::kBFloat16)) check_one(runner, model_type, "ddp", optim::Precision::bf16());
  }
}

}  // namespace qft::selftest
