#include "qft/plan/run_plan.h"

#include "qft/core/units.h"
#include "qft/parallel/optimizer_param.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "element_size.h"
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

namespace qft::plan {
namespace {

/// Bytes of the initial PiSSA factors. A converted adapter stores them as well, everything in fp32 instead of `item` bytes.
std::int64_t pissa_bytes(const model::ModelSpec& spec, std::int64_t item) {
  if (!spec.adapter.lora.pissa) return 0;
  std::int64_t factors = 0;
  for (const auto& unit : spec.units)
    for (const auto& p : unit.params)
      if (p.role == model::Role::lora_a || p.role == model::Role::lora_b) factors += p.numel;
  const std::int64_t fp32 = size_of(at::kFloat);
  return factors * (spec.adapter.lora.pissa->convert ? 3 * fp32 - item : fp32);
}

}  // namespace

std::string describe(const MemoryPlan& p) {
  std::array<std::pair<std::int64_t, const char*>, 7> parts = {{{p.weights, "weights"},
                                                                {p.gathered, "gathered weights"},
                                                                {p.gradients, "gradients"},
                                                                {p.optimizer, "optimizer"},
                                                                {p.activations, "activations"},
                                                                {p.buffers, "buffers"},
                                                                {p.reference, "reference"}}};
  std::sort(parts.begin(), parts.end(), std::greater<>());
  std::string text;
  for (const auto& [bytes, name] : parts)
    if (bytes > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_bytes(static_cast<double>(bytes)));
  if (p.peak_overlap > 0)
    text += fmt::format("; {} less, because gathered weights, gradients and temporaries peak at different times",
                        format_bytes(static_cast<double>(p.peak_overlap)));
  if (p.host > 0) text += fmt::format("; in host memory {}", format_bytes(static_cast<double>(p.host)));
  return text;
}

std::int64_t model_file_bytes(const model::ModelSpec& spec, const optim::Precision& p) {
  // PEFT expects no fp64 in adapters.
  const std::int64_t item = size_of(p.master == at::kDouble ? at::kFloat : p.master);
  if (spec.adapter.enabled()) return spec.num_params(true) * item + pissa_bytes(spec, item);
  return spec.num_params(false) * size_of(p.compute);
}

std::int64_t checkpoint_bytes(const RunPlan& run) {
  const optim::Precision& p = run.precision;
  if (run.saving.model_only) return model_file_bytes(*run.spec, p);
  std::int64_t state = run.spec->num_params(true) * size_of(p.master);
  for (const auto& unit : run.spec->units)
    for (const auto& param : unit.params)
      if (param.trainable) state += run.rule->state_bytes(parallel::optimizer_param(param.whole()), run.hyper, p);
  return state + model_file_bytes(*run.spec, p);
}

}  // namespace qft::plan
