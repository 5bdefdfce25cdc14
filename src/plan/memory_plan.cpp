#include "qft/plan/memory_plan.h"

#include "qft/model/export.h"
#include "qft/model/sublayer.h"
#include "qft/ops/dora.h"
#include "qft/ops/generic.h"
#include "qft/ops/matmul_choice.h"
#include "qft/ops/oft.h"
#include "qft/ops/token_sums.h"
#include "qft/parallel/activation_bytes.h"
#include "qft/parallel/layer_graphs.h"
#include "qft/parallel/optimizer_param.h"
#include "qft/parallel/sharded_buffer.h"
#include "qft/parallel/weight_store.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string_view>

#include "element_size.h"
#include "gathered_set.h"
#include "group_sizes.h"
#include "head_chunk.h"
#include "transient_gradients.h"

namespace qft::plan {
namespace {

/// Layers that are computed while the largest unit is prefetched.
constexpr std::int64_t kLayersAhead = 4;

/// Elements of a rank's slice of a buffer in the shard group, and of the whole buffer with padding.
std::int64_t slice(const RunPlan& run, std::int64_t n) {
  return n == 0 ? 0 : parallel::Division::share(n, slices_of(run.sharding));
}
std::int64_t padded(const RunPlan& run, std::int64_t n) {
  return run.sharding.strategy.sharded() ? padded_numel(n, slices_of(run.sharding)) : n;
}

/// Returns the device bytes of gradients kept over the step and in flight (`transient`). Adds offloaded gradients to `host`.
std::int64_t gradient_bytes(const RunPlan& run, std::int64_t transient, std::int64_t& host) {
  const std::int64_t item = size_of(run.precision.grad), wide_item = size_of(parallel::wide(run.precision.grad));
  std::int64_t sums = 0, whole = 0;
  for (const auto& unit : run.spec->units) {
    sums += slice(run, unit.trainable_numel) * (wide_item + (item == wide_item ? 0 : item));
    whole += padded(run, unit.trainable_numel);
  }
  const bool staged = item < wide_item && (run.sharding.strategy.sharded() || copies_of(run.sharding) > 1);
  if (!run.sharding.strategy.gradients) return whole * (item + (staged ? wide_item : 0) + run.partial_sums * wide_item);
  if (run.sharding.offload.optimizer) host += sums;
  return (run.sharding.offload.optimizer ? 0 : sums) + transient;
}

/// True if all ranks that share sequences or matrices may have all rows of a micro-batch.
bool has_all_rows(const RunPlan& run) {
  return !run.training && run.decodes;
}
/// Rows of a micro-batch that the linears of a rank compute.
std::int64_t rows_here(const RunPlan& run) {
  return has_all_rows(run) ? run.shape.tokens : run.spec->context.room(run.shape.tokens);
}
/// Rows that a rank computes in sub-layers with whole matrices. In decoding each rank has all rows.
std::int64_t own_rows(const RunPlan& run) {
  return has_all_rows(run) ? run.shape.tokens : run.spec->share.room(rows_here(run));
}

/// The largest scratch of any sub-layer's operations.
std::int64_t operation_bytes(const RunPlan& run) {
  BatchShape here = run.shape, own = run.shape;
  here.tokens = rows_here(run);
  own.tokens = own_rows(run);
  std::int64_t most = 0;
  for (const model::Layer& layer : run.spec->layers)
    for (const model::SubLayerSpec& sublayer : layer)
      most = std::max(most, make_sublayer(run.spec->config, sublayer)
                                ->operation_scratch_bytes(sublayer.on_own_rows       ? own
                                                          : sublayer.sequences.any() ? run.shape
                                                                                     : here,
                                                          run.precision.compute, run.training, run.kernels));
  return most;
}

/// The model's largest sizes that the scratch of linears depends on.
struct LargestSizes {
  std::int64_t input = 0, output = 0, both = 0, ranks = 0;  ///< `ranks`: LoRA ranks of one group
  std::int64_t scratch = 0;                                 ///< elements of the scratch tensors
  std::int64_t oft_scratch = 0;                             ///< bytes of OFT's scratch

  explicit LargestSizes(const RunPlan& run) {
    const std::int64_t own = own_rows(run), rows = rows_here(run), tensor_ranks = run.spec->share.ranks;
    const std::int64_t boundary = run.spec->share.room(rows) * run.spec->config.hidden_size;
    std::map<std::string_view, std::int64_t> named = {{"norm", boundary}, {"branch", boundary}};
    if (tensor_ranks > 1) {
      for (const char* name : {"gathered", "partial"}) named[name] = tensor_ranks * boundary;
      if (run.training) named["gathered.g"] = tensor_ranks * boundary;
    } else if (run.spec->context.ranks > 1) {  // the labels' rows
      const std::int64_t labels = std::min(run.shape.num_labels(), rows) * run.spec->config.hidden_size;
      if (run.training) named["partial"] = labels;
      if (run.objective.reference_rows) named["gathered"] = labels;
    }
    for (const model::Layer& layer : run.spec->layers)
      for (const model::SubLayerSpec& sublayer : layer) {
        for (const model::ParamGroup* group : sublayer.linears()) {
          input = std::max(input, group->in());
          output = std::max(output, group->out());
          both = std::max(both, group->in() + group->out());
          std::int64_t sum = 0;
          for (const model::LoraRows& part : group->lora) sum += part.rank;
          // An accelerator may multiply all experts' rows at once, the CPU one expert's.
          ranks = std::max(ranks, sum * (run.on_cpu ? 1 : group->stack.per_token));
          for (const model::OftRows& part : group->oft)
            oft_scratch =
                std::max(oft_scratch, ops::oft_scratch_bytes(rows, group->in(), part.block, run.precision.compute, run.training));
        }
        for (const model::ScratchSpec& s : sublayer.scratch)
          if (run.training || !s.backward_only)
            named[s.name] = std::max(named[s.name], s.columns * (s.of_sequences         ? run.shape.tokens
                                                                 : sublayer.on_own_rows ? own
                                                                                        : rows));
      }
    for (const auto& [name, elements] : named) scratch += elements;
  }
};

/// Bytes that the driver keeps per layer graph: assumed, not measured.
constexpr std::int64_t kGraphBytes = 64 << 10;

/// Estimates the extra bytes of CUDA graphs.
std::int64_t graph_bytes(const RunPlan& run) {
  if (!run.schedule.graphs) return 0;
  const std::int64_t graphs =
      2 * run.spec->config.num_layers * run.schedule.group * static_cast<std::int64_t>(parallel::LayerGraphs::kShapes);
  // Attention's temporary memory stays reserved twice: in the graphs' own pool, and on the stream of the first calls.
  return 2 * operation_bytes(run) + graphs * kGraphBytes;
}

/// Number of values that the head gives, and bytes of each value.
std::int64_t head_values(const RunPlan& run) {
  return run.spec->head.of_sequences() ? run.shape.num_sequences() * run.spec->head.values : run.shape.num_labels();
}
std::int64_t statistics_bytes(const RunPlan& run) {
  return size_of(run.precision.compute == at::kDouble ? at::kDouble : at::kFloat);
}

/// Bytes of the gradients of the head's values, kept until its backward.
std::int64_t grad_values_bytes(const RunPlan& run) {
  if (run.objective.kind == parallel::ObjectiveKind::row_local) return 0;
  return head_values(run) * statistics_bytes(run);
}

/// Bytes of a micro-batch's reference lane: a layer's input and output, and log-probabilities or the labels' rows.
std::int64_t reference_bytes(const RunPlan& run) {
  if (!run.schedule.reference) return 0;
  const std::int64_t label =
      run.objective.reference_rows ? run.spec->config.hidden_size * size_of(run.precision.compute) : statistics_bytes(run);
  return parallel::forward_bytes(*run.spec, run.precision.compute, run.shape.tokens) + run.shape.num_labels() * label;
}

/// Rows of logits held at a time. All labels may belong to the rows of one context rank.
std::int64_t head_rows(const RunPlan& run) {
  if (run.spec->head.of_sequences()) return 0;
  return std::min({run.shape.num_labels(), rows_here(run), head_chunk_rows(run)});
}

/// Tensors of all tokens' log-probabilities, while an objective compares a chunk's rows with the reference's.
constexpr std::int64_t kRowTensors = 4;

/// Largest temporary memory of a single operation.
struct Temporaries {
  std::int64_t layer, head = 0;

  explicit Temporaries(const RunPlan& run) : layer(operation_bytes(run)) {
    const auto& c = run.spec->config;
    const std::int64_t tensor_ranks = run.spec->share.ranks;
    if (run.objective.reference_rows) head = kRowTensors * head_rows(run) * run.spec->vocabulary.count * statistics_bytes(run);
    if (tensor_ranks * run.spec->context.ranks > 1)  // the labels' rows among a rank's own rows, and their gradient
      head += 2 * std::min(run.shape.num_labels(), run.spec->share.room(rows_here(run))) * c.hidden_size *
              size_of(run.precision.compute);
    if (!run.kernels.plain) return;
    const auto plain = [&](const ops::generic::Sizes& sizes) {
      return ops::generic::scratch_bytes(sizes, run.precision.compute);
    };
    layer =
        std::max(layer, plain({rows_here(run), c.hidden_size, (c.intermediate_size + tensor_ranks - 1) / tensor_ranks, 0, 0}));
    head += plain({rows_here(run), c.hidden_size, 0, head_rows(run), run.spec->vocabulary.count});
  }
};

/// True if a base matrix has a gradient, not only LoRA's factors and norms.
bool trains_matrices(const model::ModelSpec& spec) {
  return std::ranges::any_of(spec.units, [](const model::UnitSpec& unit) {
    return std::ranges::any_of(
        unit.params, [](const model::ParamSpec& p) { return p.trainable && p.role == model::Role::base && p.shape.size() > 1; });
  });
}

/// True if some layer's activations are not kept, so that training steps need an arena for one layer.
bool needs_recompute_arena(const RunPlan& run) {
  return run.schedule.recompute || run.schedule.reference || run.spec->lowest_trained_block() > 1;
}

/// Bytes of layers and head besides the activations: Workspace, and the arena of a recomputed layer.
std::int64_t buffer_bytes(const RunPlan& run) {
  const auto& c = run.spec->config;
  const std::int64_t item = size_of(run.precision.compute);
  const LargestSizes widest(run);
  std::int64_t elements = widest.scratch;
  if (run.training && run.random.lora_dropout > 0.0) elements += 2 * widest.input * rows_here(run);
  const std::int64_t rows = head_rows(run), vocabulary = run.spec->vocabulary.count;
  const Temporaries temporary(run);
  const std::int64_t dora = run.spec->adapter.lora.dora && run.training
                                ? ops::dora_scratch_bytes(rows_here(run), widest.output, run.precision.compute,
                                                          run.random.lora_dropout > 0.0, run.on_cpu)
                                : 0;
  std::int64_t bytes = elements * item + std::max(temporary.layer, temporary.head) + dora + widest.oft_scratch;
  if (run.spec->adapter.lora.dora && !run.on_cpu) bytes += ops::dora_norm_bytes(widest.input);
  if (run.training) {
    const std::int64_t adapter_rows = widest.ranks;
    bytes += rows_here(run) * adapter_rows * item;
    const bool full = trains_matrices(*run.spec);
    bytes += ops::token_sum_bytes(rows_here(run), full ? widest.output : adapter_rows, full ? widest.input : widest.both,
                                  run.precision.compute, run.precision.grad);
  }
  bytes += rows * ((run.objective.reference_rows ? 2 : 1) * vocabulary + c.hidden_size) * item;
  // The last row of each sequence, its norm and gradient, and converted copies of these.
  if (run.spec->head.of_sequences()) {
    bytes += run.shape.num_sequences() * c.hidden_size * (3 * item + 2 * statistics_bytes(run));
    bytes += 2 * head_values(run) * statistics_bytes(run);
    if (run.spec->head.kind == model::Head::Kind::vector)  // the unit vectors, and the terms of their gradient
      bytes += 3 * head_values(run) * statistics_bytes(run);
    else  // the converted weight of the head, and the term of its gradient
      bytes += run.spec->head.values * c.hidden_size * 2 * statistics_bytes(run);
  }
  const auto copied = [&](std::int64_t m, std::int64_t k) {
    return run.on_cpu ? ops::operand_copy_bytes(m, k, run.precision.compute) : 0;
  };
  bytes += run.training ? std::max(copied(rows_here(run), widest.output), copied(rows, vocabulary))
                        : copied(rows_here(run), widest.input);
  bytes += graph_bytes(run);
  if (!run.training || needs_recompute_arena(run))
    bytes += parallel::recomputed_layer_bytes(*run.spec, run.precision.compute, run.shape.tokens, has_all_rows(run));
  return bytes;
}

/// Extra bytes of evaluations between the steps: buffers grow to the evaluation's micro-batches, and stay.
std::int64_t evaluation_bytes(const RunPlan& run) {
  if (!run.training || run.evaluation_tokens == 0) return 0;
  const auto buffers_for = [&](std::int64_t tokens) {
    RunPlan forward = run;
    forward.training = forward.schedule.graphs = false;
    forward.shape.tokens = tokens;
    forward.shape.expanded = run.shape.expanded > 0 ? std::max(run.shape.expanded, tokens) : 0;
    forward.shape.labels = 0;
    return buffer_bytes(forward);
  };
  const std::int64_t layer =
      needs_recompute_arena(run) ? 0 : parallel::recomputed_layer_bytes(*run.spec, run.precision.compute, run.shape.tokens);
  return std::max<std::int64_t>(0, buffers_for(run.evaluation_tokens) - (buffers_for(run.shape.tokens) - layer));
}

/// Peaks of the bytes that come and go within a step.
struct TransientPeaks {
  std::int64_t gathered, gradients, all;  ///< `all`: including the operations' temporaries
};

TransientPeaks transient_peaks(const RunPlan& run, const parallel::ActionList& list,
                               const std::vector<parallel::GatheredBytes>& units) {
  parallel::Gauge gathered, gradients, all;
  GatheredSet gathered_set(units);
  TransientGradients transient(run, {&gradients, &all});
  const Temporaries temporaries(run);
  const bool gradients_come = run.training && run.sharding.strategy.gradients;
  for (const parallel::Action& action : list) {
    const std::int64_t before = gathered_set.here();
    gathered_set.run(action);
    gathered.add(gathered_set.here() - before);
    all.add(gathered_set.here() - before);
    if (gradients_come) transient.run(action);
    if (action.kind != parallel::ActionKind::forward && action.kind != parallel::ActionKind::backward) continue;
    const std::int64_t temporary = action.target == run.spec->head_unit() ? temporaries.head : temporaries.layer;
    all.add(temporary);
    all.add(-temporary);
  }
  return {gathered.peak(), gradients.peak(), all.peak()};
}

/// Staging bytes of experts that are gathered separately: ahead, and while compute waits for them.
std::int64_t staging_bytes(const RunPlan& run) {
  if (!run.sharding.strategy.weights || slices_of(run.sharding) == 1) return 0;
  const std::int64_t ahead = parallel::max_staging_bytes(*run.spec, run.precision.compute);
  return ahead + std::min(ahead, parallel::Transfers::kPieceBytes);
}

/// Temporary elements of transfers of whole parameters to owners and back. Tensor ranks either send their boxes, which the owner
/// puts together, or all hold the whole tensor, and each gets a copy back.
std::int64_t travelling(const RunPlan& run, const optim::Param& param) {
  constexpr std::int64_t kThereAndBack = 5;
  const std::int64_t numel = param.numel(), ranks = run.sharding.tensor_ranks;
  if (slices_of(run.sharding) * ranks == 1) return 0;
  if (ranks == 1) return numel * kThereAndBack;
  return param.is_cut() ? numel * kThereAndBack + numel / ranks : numel * (kThereAndBack + ranks);
}

/// Temporary bytes of an update of whole parameters: the transfers of one, and the computation of one of its matrices.
std::int64_t whole_bytes(const RunPlan& run) {
  constexpr std::int64_t kComputed = 4;
  std::int64_t most = 0;
  if (run.rule->whole == nullptr) return most;
  for (const auto& unit : run.spec->units)
    for (const auto& p : unit.params) {
      const optim::Param param = parallel::optimizer_param(p);
      if (!p.trainable || !run.rule->whole(param)) continue;
      const std::int64_t matrix = param.numel() / param.as_stack()[0];
      most = std::max(most, matrix * kComputed + travelling(run, param));
    }
  return most * size_of(run.precision.grad);
}

}  // namespace

std::int64_t partial_sums(std::int64_t micro_batches) {
  return 2 * std::bit_width(static_cast<std::uint64_t>(micro_batches)) - 1;
}

std::int64_t padded_numel(std::int64_t n, int ranks) {
  return n == 0 ? 0 : parallel::Division::share(n, ranks) * ranks;
}

std::vector<parallel::GatheredBytes> gathered_bytes(const RunPlan& run) {
  const std::int64_t item = size_of(run.precision.compute);
  const bool comes = run.sharding.offload.weights || (run.sharding.strategy.weights && slices_of(run.sharding) > 1);
  std::vector<parallel::GatheredBytes> all;
  for (const auto& unit : run.spec->units)
    all.push_back({comes ? padded(run, unit.frozen_numel) * item + padded(run, unit.packed_bytes) : 0,
                   comes ? padded(run, unit.trainable_numel) * item : 0, unit.quantized_numel * item});
  return all;
}

std::int64_t prefetch_budget(const RunPlan& run, const std::vector<parallel::GatheredBytes>& units) {
  if (run.sharding.prefetch_budget > 0) return run.sharding.prefetch_budget;
  std::int64_t unit = 0, layer = 0, decoded = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    unit = std::max(unit, units[u].gathered());
    if (run.spec->units[u].kind == model::UnitSpec::Kind::layer) layer = std::max(layer, units[u].gathered());
    decoded = std::max(decoded, units[u].decoded);
  }
  return unit + kLayersAhead * layer + (layer > 0 ? decoded : 0);
}

std::int64_t staged_bytes(const RunPlan& run) {
  const auto& p = run.precision;
  std::int64_t state = 0, trainable = 0;
  for (const auto& unit : run.spec->units) {
    const std::int64_t owned = run.sharding.strategy.optimizer ? slice(run, unit.trainable_numel) : unit.trainable_numel;
    state +=
        (owned * size_of(p.master) + parallel::state_bytes(*run.rule, run.hyper, p, unit, owned, run.sharding.tensor_ranks)) /
        copies_of(run.sharding);
    trainable += unit.trainable_numel;
  }
  if (run.saving.model_only) state = 0;
  if (run.spec->adapter.enabled()) return state + trainable * size_of(p.master);  // rank 0 writes the adapter
  const std::int64_t whole = run.spec->num_params(false) * size_of(p.compute);
  // Each writing rank writes at least one file.
  const auto file = static_cast<std::int64_t>(model::kDefaultShardBytes);
  return state + std::min(whole, std::max(whole / (slices_of(run.sharding) * copies_of(run.sharding)), file));
}

RunPlan reference_passes(const RunPlan& run) {
  const at::ScalarType type = run.precision.compute;
  RunPlan reference;
  reference.training = false;
  reference.spec = run.reference_model;
  reference.precision = {type, type, type, type};
  reference.objective.kind = parallel::ObjectiveKind::sequence_level;
  reference.shape = run.shape;
  reference.micro_batches = run.micro_batches;
  reference.sharding = run.sharding;
  reference.sharding.offload = {.weights = run.sharding.offload.weights};
  reference.schedule.group = std::max<std::int64_t>(1, run.micro_batches);
  reference.schedule.recompute = true;
  reference.on_cpu = run.on_cpu;
  reference.kernels = run.kernels;
  return reference;
}

namespace {

/// Bytes that a separate reference adds if the objective reads rows: a row for each label of a step, and the head, which stays
/// gathered.
std::int64_t rows_bytes(const RunPlan& run) {
  const model::ModelSpec& spec = *run.reference_model;
  const std::int64_t item = size_of(run.precision.compute);
  const std::int64_t rows = std::max<std::int64_t>(1, run.micro_batches) * run.shape.num_labels();
  const bool apart = run.sharding.strategy.weights || run.sharding.offload.weights;
  const auto whole = [&](int unit) { return spec.units[static_cast<std::size_t>(unit)].bytes(item); };
  const std::int64_t head = whole(spec.head_unit()) + (spec.ties_head() ? whole(0) : 0);
  return rows * spec.config.hidden_size * item + (apart ? head : 0);
}

}  // namespace

MemoryPlan plan_memory(const RunPlan& run) {
  MemoryPlan p;
  const std::int64_t item = size_of(run.precision.compute);
  const auto units = gathered_bytes(run);
  // Two groups if there are as many: memory may peak between two groups.
  const std::int64_t two_groups = 2 * run.schedule.group;
  const int most = static_cast<int>(run.micro_batches > 0 ? std::min(run.micro_batches, two_groups) : two_groups);
  const auto actions = run.training ? parallel::training_actions : parallel::evaluation_actions;
  const parallel::ActionList list = parallel::insert_prefetches(actions(*run.spec, run.schedule, {.here = most, .most = most}),
                                                                units, prefetch_budget(run, units));
  const TransientPeaks peaks = transient_peaks(run, list, units);
  p.gathered = peaks.gathered + staging_bytes(run);
  std::int64_t kept = 0, masters = 0, state = 0;
  for (const auto& unit : run.spec->units) {
    const auto kept_of = [&](std::int64_t n) { return run.sharding.strategy.weights ? slice(run, n) : padded(run, n); };
    kept += (kept_of(unit.frozen_numel) + kept_of(unit.trainable_numel)) * item + kept_of(unit.packed_bytes);
    p.weights += unit.derived_numel * size_of(run.precision.compute == at::kDouble ? at::kDouble : at::kFloat);
    const std::int64_t owned = run.sharding.strategy.optimizer ? slice(run, unit.trainable_numel) : unit.trainable_numel;
    masters += owned;
    state += parallel::state_bytes(*run.rule, run.hyper, run.precision, unit, owned, run.sharding.tensor_ranks);
  }
  (run.sharding.offload.weights ? p.host : p.weights) += kept;
  if (run.training) {
    const bool copy = run.precision.has_master_copy() || run.sharding.offload.optimizer != run.sharding.offload.weights;
    (run.sharding.offload.optimizer ? p.host : p.optimizer) += state + (copy ? masters * size_of(run.precision.master) : 0);
    if (run.sharding.offload.optimizer && !run.sharding.offload.weights)
      p.host += masters * item;  // rounded copies on their way to the device
    p.gradients = gradient_bytes(run, peaks.gradients, p.host);
    const std::int64_t micro = parallel::activation_bytes(*run.spec, run.precision.compute, run.shape.tokens,
                                                          run.schedule.recompute, run.sharding.offload.activations);
    p.activations = run.schedule.group * (micro + grad_values_bytes(run) + reference_bytes(run));
    // LibTorch's pinned memory has blocks of powers of two.
    const auto input = static_cast<std::uint64_t>(parallel::boundary_bytes(*run.spec, run.precision.compute, run.shape.tokens));
    if (run.sharding.offload.activations)
      p.host += run.schedule.group * run.spec->config.num_layers * static_cast<std::int64_t>(std::bit_ceil(input));
  } else {
    p.activations =
        run.schedule.group *
        (parallel::forward_bytes(*run.spec, run.precision.compute, run.shape.tokens, has_all_rows(run)) + reference_bytes(run));
  }
  p.buffers = buffer_bytes(run) + evaluation_bytes(run);
  // An update runs after gathered weights and activations are freed.
  if (run.training && !run.sharding.offload.optimizer)
    p.buffers += std::max<std::int64_t>(0, whole_bytes(run) - p.gathered - p.activations - p.buffers);
  // The host's allocator keeps blocks for later use of the same size; a device's blocks serve any request.
  const Temporaries temporary(run);
  if (!run.on_cpu) p.peak_overlap = peaks.gathered + peaks.gradients + std::max(temporary.layer, temporary.head) - peaks.all;
  if (run.reference_model == nullptr) return p;
  const MemoryPlan reference = plan_memory(reference_passes(run));
  p.reference = reference.total() + (run.objective.reference_rows ? rows_bytes(run) : 0);
  p.host += reference.host;
  if (!run.on_cpu) p.peak_overlap += std::min(reference.gathered, p.gathered);  // the reference gathers between the steps
  return p;
}

}  // namespace qft::plan
