#include "qft/eval/perplexity.h"

#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/sum.h>
#include <nlohmann/json.hpp>

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/units.h"

namespace qft::eval {
namespace {

/// Sums log-probabilities and, on demand, keeps those of the last micro-batch.
class Collector final : public parallel::Objective {
 public:
  explicit Collector(bool keep) : keep_(keep) {}
  void grad_logprobs(int, const model::MicroInput&, const at::Tensor&) override {}
  void observe(int, const model::MicroInput&, const at::Tensor& logprobs) override {
    sum_ += at::sum(logprobs, at::kDouble).item<double>();
    if (keep_) last_ = logprobs.to(at::kCPU, at::kFloat, false, true);
  }
  /// Of what was observed since the last call.
  double take_sum() { return std::exchange(sum_, 0.0); }
  const at::Tensor& last() const { return last_; }

 private:
  bool keep_;
  double sum_ = 0.0;
  at::Tensor last_;
};

/// One JSON line for each sequence of a micro-batch.
std::string describe(const data::MicroBatch& batch, const at::Tensor& logprobs) {
  std::string text;
  const float* values = logprobs.const_data_ptr<float>();
  std::size_t label = 0;
  for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const std::int32_t begin = batch.cu_seqlens[s], end = batch.cu_seqlens[s + 1];
    nlohmann::ordered_json line = {{"ids", std::vector<std::int32_t>(batch.tokens.begin() + begin, batch.tokens.begin() + end)},
                                   {"positions", nlohmann::ordered_json::array()},
                                   {"logprobs", nlohmann::ordered_json::array()}};
    for (; label < batch.label_positions.size() && batch.label_positions[label] < end; ++label) {
      line["positions"].push_back(batch.label_positions[label] - begin);
      line["logprobs"].push_back(values[label]);
    }
    text += line.dump() + "\n";
  }
  return text;
}

}  // namespace

model::MicroInput to_input(const data::MicroBatch& batch, c10::Device device) {
  return model::MicroInput::build(batch.tokens, batch.cu_seqlens, batch.label_positions, batch.samples, device);
}

PerplexityResult evaluate(parallel::Instance& instance, data::EvalLoader& loader, comm::Communicator& comm,
                          const std::filesystem::path& logprobs_file, const std::function<void(std::int64_t)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  const bool write = !logprobs_file.empty();
  std::ofstream out;
  comm::agreed(comm, [&] {
    if (!write || comm.rank() != 0) return;
    out.open(logprobs_file);
    require(out.good(), "cannot write predict_logprobs '{}'", logprobs_file.string());
  });
  Collector collector(write);
  // Each micro-batch has a place of its own, so that the sum is the same on any number of ranks.
  std::vector<double> sums(static_cast<std::size_t>(loader.slots() * comm.size()));
  const auto device = instance.transformer().device();
  const auto work = instance.evaluation_list(1, 1);
  const auto idle = instance.evaluation_list(0, 1);
  loader.rewind();
  for (std::int64_t slot = 0; slot < loader.slots(); ++slot) {
    const data::MicroBatch batch = loader.next().value();
    const bool has_work = !batch.tokens.empty();
    std::vector<model::MicroInput> inputs;
    if (has_work) inputs.push_back(to_input(batch, device));
    instance.executor().evaluate(has_work ? work : idle, inputs, collector);
    sums[static_cast<std::size_t>(slot * comm.size() + comm.rank())] = collector.take_sum();
    if (write) {
      // Rank r's micro-batch of a slot precedes rank r + 1's in source order.
      for (const auto& text : comm::all_gather_strings(comm, has_work ? describe(batch, collector.last()) : ""))
        if (comm.rank() == 0) out << text;
    }
    if (progress) progress(slot + 1);
  }
  if (write && comm.rank() == 0) {
    out.close();
    require(!out.fail(), "cannot write predict_logprobs '{}': is the disk full?", logprobs_file.string());
  }
  PerplexityResult result;
  result.label_tokens = loader.global_label_tokens();
  result.tokens = loader.global_tokens();
  result.items = loader.num_items();
  result.steps = loader.slots();
  comm.all_reduce(sums.data(), sums.size(), DType::f64);
  result.loss = plain_nan(-std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(result.label_tokens));
  result.perplexity = std::exp(result.loss);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace qft::eval
