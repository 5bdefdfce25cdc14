// Runs a model on given sequences and writes its results, for scripts that compare with other implementations.
//   model_probe < JOBS
// JOBS has one job per line, answered by a line "done": {"run": RUN.yaml, "input": INPUT, "output": OUTPUT.safetensors}
// INPUT: {"sequences": [{"ids": [...], "label_spans": [[begin, end], ...]}, ...], "group": g, "micro_batch": n}
// OUTPUT: "logits" [T, V], "logprobs" [labels], "loss" [1], and "grad.<name>" for every trainable parameter.
#include "qft/core/error.h"
#include "qft/dialects/dialects.h"
#include "qft/engine/instance.h"
#include "qft/engine/objectives.h"
#include "qft/io/storage.h"
#include "qft/job/run_main.h"
#include "qft/model/load.h"

#include <iostream>
#include <map>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>
#include <nlohmann/json.hpp>

namespace {

using namespace qft;  // NOLINT: a test program

struct Sequences {
  std::vector<std::int32_t> tokens, cu_seqlens{0}, labels;
  std::vector<std::int64_t> samples;

  void add(const nlohmann::json& sequence, std::int64_t sample) {
    const auto begin = static_cast<std::int32_t>(tokens.size());
    for (const auto& id : sequence.at("ids")) tokens.push_back(id.get<std::int32_t>());
    for (const auto& span : sequence.at("label_spans"))
      for (std::int32_t p = std::max(1, span.at(0).get<int>()); p < span.at(1).get<int>(); ++p) labels.push_back(begin + p);
    cu_seqlens.push_back(static_cast<std::int32_t>(tokens.size()));
    samples.push_back(sample);
  }
  model::MicroInput build() const { return model::MicroInput::build(tokens, cu_seqlens, labels, samples, at::kCPU); }
};

at::Tensor all_logits(engine::Instance& instance, model::MicroInput in) {
  const c10::InferenceMode guard;
  auto& t = instance.transformer();
  const auto& spec = instance.spec();
  const auto flat = [&](int unit) { return instance.weights().acquire(unit); };
  t.ensure_positions(in.sequences.max_length);
  model::Arena arena(at::kCPU);
  in.angles = t.dynamic_angles(in, arena);
  const auto options = at::TensorOptions().dtype(t.dtype());
  at::Tensor x = at::full({in.num_tokens(), spec.config.hidden_size}, 0.0, options), y = x.clone();
  const auto embed = model::bind_weight(spec.units[0], model::kEmbedTokens, flat(0));
  t.embedding_forward(embed, in, x);
  for (int layer = 0; layer < spec.config.num_layers; ++layer) {
    const auto weights = model::bind_layer(spec, spec.units[static_cast<std::size_t>(layer) + 1], flat(layer + 1));
    t.layer_forward(layer, weights, in, {}, y, t.allocate_saved(layer, weights, x, arena));
    std::swap(x, y);
  }
  const auto& head = spec.units.back();
  const auto norm = model::bind_weight(head, model::kFinalNorm, flat(spec.head_unit()));
  const auto table = spec.config.tie_word_embeddings ? embed : model::bind_weight(head, model::kLmHead, flat(spec.head_unit()));
  return t.logits(norm, table, x).clone();
}

void write(const std::string& path, const std::map<std::string, at::Tensor>& tensors) {
  std::vector<io::TensorSpec> specs;
  for (const auto& [name, t] : tensors) specs.push_back({name, DType::f64, t.sizes().vec()});
  io::SafetensorsWriter out(io::posix_storage(), path, specs);
  for (const auto& [name, t] : tensors) {
    const at::Tensor d = t.to(at::kDouble).contiguous();
    out.append(d.data_ptr(), d.nbytes());
  }
  out.finish();
}

void compute(comm::Session& session, const nlohmann::json& job) {
  const auto config = config::load_run_config(job.at("run").get<std::string>(), {}, config::Purpose::any, dialects::all());
  const auto& input = job.at("input");
  const auto source = engine::ModelSource::read(config, engine::Use::training);
  auto instance =
      engine::Instance::load(engine::resolve_run(config, source, session.world(), at::kCPU), source, session.world(), at::kCPU);
  const int per_micro = input.value("micro_batch", 1);
  Sequences all;
  std::vector<Sequences> micros;
  std::int64_t sample = 0;
  for (const auto& s : input.at("sequences")) {
    if (sample % per_micro == 0) micros.emplace_back();
    micros.back().add(s, sample);
    all.add(s, sample++);
  }
  std::map<std::string, at::Tensor> out;
  out["logits"] = all_logits(*instance, all.build());
  const std::vector<model::MicroInput> whole = {all.build()};
  instance->executor().evaluate(
      parallel::evaluation_actions(instance->spec(), {}, {}), whole,
      [&](const parallel::Logprobs& values) { out["logprobs"] = values.policy.to(at::kDouble, false, true); });

  std::vector<model::MicroInput> inputs;
  for (const auto& m : micros) inputs.push_back(m.build());
  const int n = static_cast<int>(inputs.size());
  const parallel::BatchTotals totals{static_cast<double>(all.labels.size()), static_cast<double>(sample),
                                     static_cast<double>(all.tokens.size())};
  const auto loss = engine::make_objective(config, instance->spec().config, totals);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    inputs[i].routing =
        model::Routing::build(instance->spec().config, inputs[i].sequences, instance->transformer().statistics_dtype(), at::kCPU);
  const auto result = instance->executor().train(
      parallel::training_actions(instance->spec(), {.group = input.value("group", 1)}, {n, n}), inputs, *loss, 0);
  out["loss"] = at::full({1}, result.loss, at::kDouble);
  out["grad_norm"] = at::full({1}, result.grad_norm, at::kDouble);
  for (int u = 0; u < instance->spec().num_units(); ++u)
    for (const auto& p : instance->spec().units[static_cast<std::size_t>(u)].params)
      if (p.trainable) {
        const at::Tensor grad = instance->grad(u, p).values;
        if (p.role == model::Role::base) {
          out["grad." + p.name] = grad.view(p.shape);
          continue;
        }
        for (const auto& [tensor, values] : model::as_in_files(p, grad)) out["grad." + tensor.name] = values;
      }
  write(job.at("output").get<std::string>(), out);
}

int run(comm::Session& session, std::span<const std::string> args) {
  require(args.empty(), "usage: model_probe < JOBS");
  for (std::string line; std::getline(std::cin, line);) {
    compute(session, nlohmann::json::parse(line));
    std::cout << "done" << std::endl;  // NOLINT: the script waits for it
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return job::run_main(argc, argv, run);
}
