#include "exchanges.h"

#include "qft/parallel/sharded_buffer.h"

#include <algorithm>
#include <string_view>

#include "element_size.h"
#include "group_sizes.h"
#include "head_chunk.h"

namespace qft::plan {
namespace {

using model::SubLayerSpec;
using model::UnitSpec;
using parallel::Action;
using parallel::ActionKind;

double amount(std::int64_t n) {
  return static_cast<double>(n);
}

/// Parts of `ranks` ranks that each rank gets from the others.
double of_others(int ranks) {
  return amount(ranks - 1) / ranks;
}

/// An all-gather or a reduce-scatter of a buffer.
Exchange once(double bytes, int ranks) {
  return {bytes * of_others(ranks), amount(ranks - 1)};
}
/// An all-reduce of a buffer.
Exchange summed(double bytes, int ranks) {
  return {2 * bytes * of_others(ranks), 2.0 * (ranks - 1)};
}
Exchange operator*(double times, const Exchange& e) {
  return {times * e.bytes, times * e.hops};
}

template <class Trains>
bool any_trains(const UnitSpec& unit, const Trains& trains) {
  return std::ranges::any_of(unit.params, [&](const model::ParamSpec& p) { return p.trainable && trains(p.path); });
}

bool norm_trains(const UnitSpec& unit, const SubLayerSpec& sublayer) {
  return any_trains(unit, [&](std::string_view path) { return path == sublayer.norm; });
}

/// True if a linear that reads the sub-layer's input trains, so that backward needs this input.
bool inputs_train(const UnitSpec& unit, const SubLayerSpec& sublayer) {
  const auto groups = sublayer.linears();
  for (int i = 0; i < sublayer.input_groups; ++i)
    for (const model::LinearSpec& linear : groups[static_cast<std::size_t>(i)]->linears)
      if (any_trains(unit, [&](std::string_view path) { return path.starts_with(linear.path + "."); })) return true;
  return false;
}

/// The exchanges of one micro-batch.
class OfMicroBatch {
 public:
  OfMicroBatch(const RunPlan& run, const MicroShape& micro)
      : run_(run),
        spec_(*run.spec),
        micro_(micro),
        tensor_(run.sharding.tensor_ranks),
        context_(run.sharding.context_ranks),
        item_(amount(size_of(run.precision.compute))),
        statistic_(run.precision.compute == at::kDouble ? 8 : 4) {}

  Exchanges forward(const Action& action) const {
    if (action.target == 0) return {.tensor = rows()};
    if (action.target == spec_.head_unit()) return head_forward(action);
    return layer_forward(layer_of(action));
  }

  Exchanges backward(const Action& action) const {
    if (action.target == 0) return {.tensor = rows()};
    if (action.target == spec_.head_unit()) return head_backward();
    Exchanges all = layer_backward(action);
    if (run_.schedule.recompute) all += layer_forward(layer_of(action));
    return all;
  }

 private:
  const model::Layer& layer_of(const Action& action) const {
    return spec_.layers[static_cast<std::size_t>(spec_.units[static_cast<std::size_t>(action.target)].layer)];
  }

  std::int64_t rows_here() const { return spec_.context.room(micro_.tokens); }
  /// The collection, or the sum, of all rows among the tensor ranks; buffers have room for equally many rows of each rank.
  Exchange rows() const {
    return once(amount(tensor_ * spec_.share.room(rows_here()) * spec_.config.hidden_size) * item_, tensor_);
  }
  /// A number for each row, added over the tensor ranks.
  Exchange row_sums() const { return summed(amount(rows_here()) * statistic_, tensor_); }

  /// Norms of all heads add up q's and k's squares.
  Exchange norm_sums(const SubLayerSpec& sublayer) const {
    const bool whole = sublayer.kind == model::SubLayerKind::attention && spec_.config.qk_norm == model::QkNorm::whole;
    return whole ? 2.0 * row_sums() : Exchange{};
  }

  /// Rows of all heads for all rows of some heads, and back.
  Exchange heads(const SubLayerSpec& sublayer) const {
    const double columns = amount(sublayer.exchanged_columns);
    return {amount(micro_.tokens) / context_ * columns * item_ * of_others(context_), columns > 0 ? 2.0 : 0.0};
  }

  Exchanges layer_forward(const model::Layer& layer) const {
    Exchanges all;
    for (const SubLayerSpec& sublayer : layer) {
      all.context += heads(sublayer);
      if (sublayer.on_own_rows) continue;
      all.tensor += 2.0 * rows();
      all.tensor += norm_sums(sublayer);
    }
    return all;
  }

  /// Collects the output's gradient and, if a linear that reads the input trains, the input; adds up the input's gradient.
  Exchanges layer_backward(const Action& action) const {
    const UnitSpec& unit = spec_.units[static_cast<std::size_t>(action.target)];
    const model::Layer& layer = layer_of(action);
    Exchanges all;
    for (const SubLayerSpec& sublayer : layer) {
      all.context += heads(sublayer);
      if (sublayer.on_own_rows) continue;
      const bool propagates =
          &sublayer != &layer.front() || action.needs_gradient || (!sublayer.norm_after && norm_trains(unit, sublayer));
      all.tensor += (1.0 + (inputs_train(unit, sublayer) ? 1 : 0) + (propagates ? 1 : 0)) * rows();
      all.tensor += norm_sums(sublayer);
    }
    return all;
  }

  /// The labels' rows, gathered or added up.
  Exchange label_rows() const { return once(amount(micro_.labels * spec_.config.hidden_size) * item_ / context_, tensor_); }
  /// Maxima, sums of exponentials and the targets' logits. The rows of a chunk are exchanged together.
  Exchange softmax() const {
    const std::int64_t labels = spec_.context.room(micro_.labels), rows = head_chunk_rows(run_);
    const Exchange number = summed(statistic_, tensor_);
    return {3 * amount(micro_.labels) / context_ * number.bytes, 2 * amount((labels + rows - 1) / rows) * number.hops};
  }
  /// The head's values, complete on each rank.
  Exchange values(int ranks) const {
    const std::int64_t of_sequences = micro_.num_sequences() * spec_.head.values;
    return summed(amount(spec_.head.of_sequences() ? of_sequences : micro_.labels) * statistic_, ranks);
  }
  /// Two rows of the vocabulary, which different ranks may hold.
  Exchange token_rows() const {
    if (spec_.head.kind != model::Head::Kind::token_difference) return {};
    return summed(amount(spec_.config.hidden_size) * statistic_, tensor_);
  }
  Exchange token_rows_backward() const {
    const bool table = any_trains(spec_.units[spec_.ties_head() ? 0 : static_cast<std::size_t>(spec_.head_unit())],
                                  [](std::string_view path) { return path == model::kLmHead || path == model::kEmbedTokens; });
    return (table ? 2.0 : 1.0) * token_rows();
  }

  /// Sums of the routers' choices, which the ranks have for their own rows: two numbers for each sequence and expert, one for
  /// each layer and expert, and two more.
  Exchange routing(const Action& action, int ranks) const {
    const std::int64_t experts = spec_.config.experts.count;
    if (experts == 0 || !run_.training || action.lane != parallel::Lane::policy) return {};
    const std::int64_t numbers = (2 * micro_.num_sequences() + spec_.config.num_layers) * experts + 2;
    return summed(amount(numbers) * statistic_, ranks);
  }

  Exchanges head_forward(const Action& action) const {
    Exchanges all{.tensor = routing(action, tensor_), .context = routing(action, context_)};
    const bool rows = action.lane == parallel::Lane::reference && run_.objective.reference_rows;
    all.context += rows ? once(amount(micro_.labels * spec_.config.hidden_size) * item_, context_) : values(context_);
    const bool turns = run_.training && action.lane == parallel::Lane::policy &&
                       run_.objective.kind == parallel::ObjectiveKind::row_local;  // the gradient too
    if (spec_.head.of_sequences()) {
      all.tensor += values(tensor_);
      all.tensor += token_rows();
      if (turns) all.tensor += token_rows_backward();
      return all;
    }
    all.tensor += label_rows();
    if (rows) return all;
    all.tensor += softmax();
    if (turns) all.tensor += label_rows();
    return all;
  }

  /// Objectives of whole sequences compute the head again.
  Exchanges head_backward() const {
    if (run_.objective.kind == parallel::ObjectiveKind::row_local) return {};
    if (spec_.head.of_sequences()) return {.tensor = token_rows_backward()};
    Exchanges all{.tensor = 2.0 * label_rows()};
    all.tensor += softmax();
    return all;
  }

  const RunPlan& run_;
  const model::ModelSpec& spec_;
  const MicroShape& micro_;
  int tensor_, context_;
  double item_, statistic_;
};

}  // namespace

Exchange& Exchange::operator+=(const Exchange& other) {
  bytes += other.bytes;
  hops += other.hops;
  return *this;
}

Exchanges& Exchanges::operator+=(const Exchanges& other) {
  tensor += other.tensor;
  context += other.context;
  return *this;
}

Exchanges exchanges_of(const RunPlan& run, const Action& action, const MicroShape& micro) {
  if (run.sharding.tensor_ranks == 1 && run.sharding.context_ranks == 1) return {};
  const OfMicroBatch exchanged(run, micro);
  if (action.kind == ActionKind::forward) return exchanged.forward(action);
  return action.kind == ActionKind::backward ? exchanged.backward(action) : Exchanges{};
}

Exchanges exchanges_of_update(const RunPlan& run) {
  const int ranks = run.sharding.tensor_ranks;
  if (ranks == 1) return {};
  double terms = 0, norms = 0;
  for (const UnitSpec& unit : run.spec->units)
    for (const model::ParamSpec& p : unit.params)
      if (p.trainable && p.placement(comm::Axis::tensor) == model::GradPlacement::partial) terms += amount(p.slots * p.numel);
  for (const model::Layer& layer : run.spec->layers)
    for (const SubLayerSpec& sublayer : layer)
      for (const model::ParamGroup* group : sublayer.linears())
        for (const model::LoraRows& part : group->lora)
          if (part.dora && group->linears[part.linear].columns.is_cut()) norms += amount(part.rows);
  Exchanges all;
  if (terms > 0) all.tensor += summed(terms / slices_of(run.sharding) * size_of(parallel::wide(run.precision.grad)), ranks);
  if (norms > 0) all.tensor += summed(norms * (run.precision.compute == at::kDouble ? 8 : 4), ranks);
  return all;
}

}  // namespace qft::plan
