// Decoders over a small random model.
#pragma once

#include "qft/infer/decoder.h"
#include "qft/selftest/small_run.h"

#include <memory>
#include <vector>

#include <ATen/Parallel.h>

namespace qft::infer::testing {

struct TinyModel {
  explicit TinyModel(const selftest::SmallCase& c) : comm(comm::make_self_communicator()), run(c, *comm) {
    at::set_num_threads(1);  // the work is too small for two threads, which wait for each other on a busy machine
    run.step(0, 3);          // so that LoRA's B matrices are not zero
  }
  std::unique_ptr<Decoder> decoder(std::int64_t capacity, std::size_t slots) {
    return std::make_unique<Decoder>(run.transformer(), run.reader(), capacity, slots);
  }
  std::unique_ptr<comm::Communicator> comm;
  selftest::SmallRun run;
};

/// Kinds of models, each with a property that the others lack.
inline std::vector<selftest::SmallCase> tiny_cases() {
  selftest::SmallCase qwen2, qwen3, bf16, dynamic;
  qwen2.precision = optim::Precision::fp32();
  qwen3 = qwen2;
  qwen3.model_type = "qwen3";
  qwen3.sliding_window = 4;
  qwen3.tied = false;
  qwen3.lora = true;
  bf16 = qwen3;
  bf16.precision = optim::Precision::bf16();
  dynamic = qwen2;
  dynamic.dynamic_positions = 8;
  return {qwen2, qwen3, bf16, dynamic};
}

inline std::vector<std::int32_t> tiny_tokens(int number, int length) {
  return selftest::small_tokens(number, length);
}

}  // namespace qft::infer::testing
