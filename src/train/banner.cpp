#include "banner.h"

#include "qft/core/convert.h"
#include "qft/core/log.h"
#include "qft/core/units.h"
#include "qft/core/version.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/scalar_type.h"
#include "qft/device/threads.h"
#include "qft/encode/template_spec.h"

#include <algorithm>
#include <utility>

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

namespace qft::train {
namespace {

std::string precision_words(const optim::Precision& p) {
  const auto name = [](at::ScalarType type) { return short_name(device::dtype_of(type)); };
  return fmt::format("{} compute, {} masters, {} gradients", name(p.compute), name(p.master), name(p.grad));
}

/// "1 node: cn01", "2 nodes: cn01, cn02", in the order of the ranks.
std::string nodes_words(const std::vector<std::string>& hosts, int nodes) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> names;
  for (const auto& host : hosts)
    if (std::ranges::find(names, host) == names.end()) names.push_back(host);
  const std::size_t left_out = names.size() > kMost ? names.size() - kMost : 0;
  names.resize(names.size() - left_out);
  return fmt::format("{}: {}{}", count_noun(nodes, "node"), fmt::join(names, ", "),
                     left_out > 0 ? fmt::format(" and {} more", left_out) : "");
}

/// "16 (micro-batch 1 x 8 accumulated x 2 ranks)"; "at most" if ranks get different numbers of micro-batches.
std::string batch_words(const Banner& b, const config::RunConfig& config, int ranks) {
  const int data_ranks = config.data_ranks(ranks);
  const std::int64_t together = b.micro_batch_size * data_ranks;
  const std::string accumulated =
      b.global_batch_size % together == 0 ? fmt::format("x {} accumulated x", b.global_batch_size / together) : "at most, on";
  return fmt::format("{} (micro-batch {} {} {})", b.global_batch_size, b.micro_batch_size, accumulated,
                     count_noun(data_ranks, config.parallel.data_rank_noun()));
}

/// The predicted memory of one rank, with its parts.
std::string memory_words(const plan::RunPlan& run) {
  const auto bytes = [](std::int64_t n) { return format_bytes(static_cast<double>(n)); };
  const plan::Footprint& footprint = run.footprint;
  std::string parts = fmt::format("{}; the process before loading {}", plan::describe(footprint.memory), bytes(run.process));
  if (footprint.kernels > 0) parts += fmt::format(", compiled kernels {}", bytes(footprint.kernels));
  if (run.on_cpu && footprint.staged > 0) parts += fmt::format(", checkpoint copies {}", bytes(footprint.staged));
  return fmt::format("{} of {} available ({})", bytes(run.predicted()), bytes(run.process + run.available), parts);
}

/// Kinds and sizes of the quantised and the unquantised weights; empty without quantisation. A tensor rank's part of a matrix
/// keeps double quantisation only if it has whole blocks of scales.
std::string quantization_words(const model::ModelSpec& spec, const optim::Precision& precision) {
  std::int64_t weights = 0, nested = 0, packed = 0, plain = 0;
  std::vector<std::string> kinds;
  for (const auto& unit : spec.units)
    for (const auto& p : unit.params) {
      if (p.role != model::Role::base) continue;
      weights += p.is_quantized() ? p.numel : 0;
      packed += p.packed_bytes();
      ops::Quantization kind = p.packed.kind;
      nested += p.is_quantized() && kind.nested ? p.numel : 0;
      kind.nested = false;
      if (const std::string name = ops::describe(kind); p.is_quantized() && std::ranges::find(kinds, name) == kinds.end())
        kinds.push_back(name);
      plain += p.is_quantized() ? 0 : p.numel;
    }
  if (packed == 0) return {};
  const auto item = static_cast<std::int64_t>(c10::elementSize(precision.compute));
  const auto bytes = [](std::int64_t n) { return format_bytes(static_cast<double>(n)); };
  const std::string doubly = nested == 0 ? ""
                             : nested == weights
                                 ? " with double quantisation"
                                 : fmt::format(", {:.0f}% of them with double quantisation",
                                               100.0 * static_cast<double>(nested) / static_cast<double>(weights));
  return fmt::format(
      "quantised{}: the layers' linears to {}{}, {} instead of {} in {}; embedding, head, norms, biases and routers stay {}, {}",
      spec.config.stored ? ", as the model's files have it" : "", fmt::join(kinds, " and "), doubly, bytes(packed),
      bytes(weights * item), short_name(device::dtype_of(precision.compute)), short_name(device::dtype_of(precision.compute)),
      bytes(plain * item));
}

/// "dpo (sigmoid, beta 0.1), LoRA of rank 8, alpha 16, dropout 0 on q_proj,v_proj"
std::string method_words(const config::RunConfig& config, const model::ModelSpec& spec) {
  const auto& f = config.finetuning;
  std::string words = f.stage;
  const config::Stage& stage = config.stage();
  if (stage.reads("pref_beta", config))
    words += fmt::format(" ({}beta {})", stage.reads("pref_loss", config) ? f.pref_loss + ", " : "", f.pref_beta);
  if (const model::LoraConfig& lora = spec.adapter.lora; lora.enabled())
    return words + fmt::format(", {}{} of rank {}, alpha {}, dropout {} on {}", lora.dora ? "DoRA" : "LoRA",
                               lora.pissa ? " by PiSSA," : "", lora.rank, lora.alpha, lora.dropout,
                               spec.adapter.targets().targets_text());
  if (spec.adapter.oft.enabled()) return words + ", " + spec.adapter.oft.describe();
  return fmt::format("{}, {}", words, f.finetuning_type == "full" ? "all weights" : f.finetuning_type);
}

/// Describes the effect of rope_scaling on the model.
std::string scaling_words(const config::RunConfig& config, const model::ModelConfig& c) {
  if (c.rope.dynamic && c.scaled_from > 0)
    return fmt::format(
        "frequencies change only beyond {} tokens, as with LLaMA-Factory; to use it in other programs write it into the model's "
        "config.json (docs/models.md)",
        c.rope.dynamic->positions);
  if (c.max_position_embeddings > c.first_positions())
    return fmt::format("extends the model from {1} to {0} positions, for which it was not trained before",
                       c.max_position_embeddings, c.first_positions());
  return fmt::format("no effect: cutoff_len {} is within the model's {} positions", config.data.cutoff_len,
                     c.max_position_embeddings);
}

/// Logs one line of the banner.
void tell(std::string_view what, const std::string& fact) {
  if (!fact.empty()) log::info("{:<10} {}", what, fact);
}

std::string model_words(const std::string& path, const model::ModelSpec& spec, const engine::Instance& instance) {
  const auto& c = spec.config;
  const std::int64_t trainable = spec.num_params(true), all = spec.num_params(false);
  return fmt::format(
      "'{}': {}, {} layers, hidden {}, {} heads / {} kv; {} parameters, {} trainable ({:.2f}%); loaded in {:.2f} s", path,
      c.architecture, c.num_layers, c.hidden_size, c.num_heads, c.num_kv_heads, format_count(static_cast<double>(all)),
      format_count(static_cast<double>(trainable)), 100.0 * static_cast<double>(trainable) / static_cast<double>(all),
      instance.load_report().seconds);
}

std::string data_words(const Banner& b, const config::RunConfig& config) {
  std::string words = count_noun(b.samples, "sample");
  if (b.held_out > 0) words += fmt::format(", and {} to evaluate", b.held_out);
  if (b.rows > 0) words += fmt::format(" in {} rows", b.rows);
  const bool own = b.template_name.empty() || b.template_name == encode::kOwnTemplate;
  words += fmt::format("; template {}, cutoff_len {}", own ? "of the model" : b.template_name, config.data.cutoff_len);
  if (b.shared > 0) words += fmt::format("; each pair's prompt is computed once: {:.0f}% of the tokens", 100.0 * b.shared);
  return words;
}

/// "8 (0.67 epochs), 16 samples each (micro-batch 8 x 1 accumulated x 2 ranks), a log line every 2"
std::string steps_words(const Banner& b, const config::RunConfig& config, int ranks) {
  const double epochs = static_cast<double>(b.total_steps) / static_cast<double>(std::max<std::int64_t>(1, b.steps_per_epoch));
  const std::int64_t lines = config.training.log_interval(b.total_steps);
  return fmt::format("{} ({:.2f} epochs), global batch {}, a log line every {}", b.total_steps, epochs,
                     batch_words(b, config, ranks), lines == 1 ? "step" : fmt::format("{} steps", lines));
}

/// Notes keys that have no effect on this device, and features of the model that training lacks.
void tell_of_no_effect(const Banner& b, const config::RunConfig& config, engine::Instance& instance) {
  const auto& p = config.parallel;
  const c10::Device device = instance.transformer().device();
  const std::string here = device.is_cpu() ? "a CPU" : device::describe(device);
  for (const auto& [key, place] : {std::pair{"offload_optimizer", p.offload_optimizer},
                                   {"offload_param", p.offload_param},
                                   {"offload_activations", p.offload_activations}})
    if (place != "none" && !device::has_own_memory(device))
      log::info("note: {} is {}, which has no effect on {}: its memory is host memory", key, place, here);
  if (config.training.debug_sync && device.is_cpu())
    log::info("note: debug_sync is true, which has no effect on a CPU: work is done when a call returns");
  if (config.training.cuda_graphs && !device::records_graphs(device))
    log::info("note: cuda_graphs is true, which has no effect on {}",
              device.is_cpu() ? "a CPU: no kernels are queued" : here + ": it records no graphs");
  const auto& model = instance.spec().config;
  if (!config.model.rope_scaling.empty())
    log::info("note: rope_scaling {}: {}", config.model.rope_scaling, scaling_words(config, model));
  if (model.attention_dropout > 0.0)
    log::warn("attention_dropout of the model's config.json is {}: this is not implemented, training continues without it",
              model.attention_dropout);
  if (b.shared == 0 && config.stage().has_pairs() && config.finetuning.share_prompts && !config.unshared_prompts_reason().empty())
    log::info("note: each pair's prompt is computed twice: {}", config.unshared_prompts_reason());
}

}  // namespace

void print(const Banner& b, const config::RunConfig& config, engine::Instance& instance, const comm::Session& session) {
  const auto& spec = instance.spec();
  tell("run", fmt::format("qft {}, {} on {}, {} each on cpus {}; {}", version(), count_noun(session.size(), "rank"),
                          nodes_words(b.hosts, session.node_count()), count_noun(at::get_num_threads(), "thread"),
                          device::format_cpu_list(device::cpu_share().cpus), device::describe(instance.transformer().device())));
  tell("model", model_words(b.model, spec, instance));
  tell("weights", quantization_words(spec, instance.precision()));
  tell("method", method_words(config, spec));
  tell("data", data_words(b, config));
  tell("precision", fmt::format("{}; recomputation {}{}", precision_words(instance.precision()),
                                instance.plan().schedule.recompute ? "on" : "off",
                                instance.plan().precision_reason.empty() ? "" : "; " + instance.plan().precision_reason));
  engine::log_layout(config, instance);
  tell("memory", "of a rank, predicted: " + memory_words(instance.plan()));
  tell("steps", steps_words(b, config, session.size()));
  tell_of_no_effect(b, config, instance);
  for (const std::string& line : b.first_sample) log::info("{}", line);
}

}  // namespace qft::train
