#include "qft/parallel/layer_graphs.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/upload.h"

#include <utility>

#include <ATen/ops/zeros.h>

namespace qft::parallel {
namespace {

const void* address(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr() : nullptr;
}

/// Returns the sequence boundaries of a micro-batch, padded to its graph shape.
std::vector<std::int32_t> padded_bounds(std::vector<std::int32_t> bounds, const GraphShape& shape) {
  bounds.resize(static_cast<std::size_t>(shape.sequences) + 1, static_cast<std::int32_t>(shape.tokens));
  return bounds;
}

/// Fills the rows from `count` on with copies of earlier rows. Any token would do; these certainly give finite numbers.
void repeat_rows(const at::Tensor& tokens, std::int64_t count) {
  if (count == 0) tokens.zero_();
  for (std::int64_t filled = count; count > 0 && filled < tokens.numel();) {
    const std::int64_t n = std::min(count, tokens.numel() - filled);
    tokens.narrow(0, filled, n).copy_(tokens.narrow(0, 0, n), /*non_blocking=*/true);
    filled += n;
  }
}

model::MicroInput room_for(const GraphShape& shape, c10::Device device) {
  const auto integers = at::TensorOptions().dtype(at::kInt).device(device);
  model::MicroInput in;
  in.tokens = at::zeros({shape.tokens}, integers);
  in.positions = at::zeros({shape.tokens}, integers);
  in.sequences.max_length = static_cast<std::int32_t>(shape.tokens);
  if (!device.is_cpu()) in.sequences.device_cu_seqlens = at::zeros({shape.sequences + 1}, integers);
  return in;
}

}  // namespace

GraphShape graph_shape_of(const model::MicroInput& in) {
  return GraphShape::of(in.num_tokens(), in.sequences.num_sequences());
}

LayerGraphs::LayerGraphs(model::Transformer& transformer) : transformer_(transformer), pool_(transformer.device()) {}
LayerGraphs::~LayerGraphs() = default;

const model::MicroInput& LayerGraphs::admit(std::size_t place, const model::MicroInput& in) {
  QFT_ASSERT(!in.sequences.shared.any(), "a graph of {} sequences that share rows", in.sequences.num_sequences());
  const GraphShape shape = graph_shape_of(in);
  if (places_.size() <= place) places_.resize(place + 1);
  model::MicroInput& padded = graphs_for(places_[place], shape).input;
  const std::int64_t tokens = in.num_tokens();
  padded.tokens.narrow(0, 0, tokens).copy_(in.tokens, /*non_blocking=*/true);
  repeat_rows(padded.tokens, tokens);
  padded.positions.narrow(0, 0, tokens).copy_(in.positions, /*non_blocking=*/true);
  at::Tensor added_positions = padded.positions.narrow(0, tokens, shape.tokens - tokens);
  at::arange_out(added_positions, added_positions.numel());
  padded.sequences.cu_seqlens = padded_bounds(in.sequences.cu_seqlens, shape);
  if (padded.sequences.device_cu_seqlens.defined())
    padded.sequences.device_cu_seqlens.copy_(device::upload(padded.sequences.cu_seqlens, transformer_.device()),
                                             /*non_blocking=*/true);
  padded.labels = in.labels;
  return padded;
}

LayerGraphs::ShapeGraphs& LayerGraphs::graphs_for(Place& place, const GraphShape& shape) {
  auto found = place.shapes.find(shape);
  if (found == place.shapes.end()) {
    if (place.shapes.size() == kShapes) evict_oldest(place);
    auto graphs = std::make_unique<ShapeGraphs>();
    graphs->input = room_for(shape, transformer_.device());
    graphs->calls.resize(2 * static_cast<std::size_t>(transformer_.spec().config.num_layers));
    found = place.shapes.emplace(shape, std::move(graphs)).first;
  }
  place.current = found->second.get();
  place.current->used = ++clock_;
  return *place.current;
}

void LayerGraphs::evict_oldest(Place& place) {
  const auto oldest = std::min_element(place.shapes.begin(), place.shapes.end(),
                                       [](const auto& a, const auto& b) { return a.second->used < b.second->used; });
  counts_.evicted += std::ranges::count_if(oldest->second->calls, [](const RecordedCall& r) { return r.graph != nullptr; });
  place.shapes.erase(oldest);
}

LayerGraphs::Addresses LayerGraphs::addresses_of(const LayerCall& call) const {
  const auto& rope = transformer_.rope();
  const model::UnitBuffers& flat = call.flat;
  Addresses all = {address(call.y),    address(call.g),       address(flat.frozen), address(flat.trainable),
                   address(flat.grad), address(flat.decoded), address(rope.cos),    address(rope.sin)};
  for (const model::SubLayerSaved& s : call.saved.sublayers) {
    all.insert(all.end(), {address(s.x), address(s.rstd)});
    for (const at::Tensor& t : s.tensors) all.push_back(address(t));
    for (const at::Tensor& t : s.lora) all.push_back(address(t));
  }
  return all;
}

void LayerGraphs::start_over(RecordedCall& recorded, const LayerCall& call, const Addresses& addresses,
                             const model::MicroInput& in) {
  if (recorded.graph) {
    ++counts_.moved;
    log::debug("cuda_graphs: layer {} is captured again, because memory that it uses has moved", call.layer);
  }
  if (counts_.is_unprofitable() && !std::exchange(warned_, true))
    log::warn(
        "cuda_graphs: {} graphs were discarded because memory that they use had moved, {} because micro-batches have more than "
        "{} shapes; {} replays: capturing costs more than it saves, so remove the key or set packing: true",
        counts_.moved, counts_.evicted, kShapes, counts_.replayed);
  recorded = {};
  recorded.workspace =
      transformer_.workspace().addresses_used_by([&] { pool_.warm_up([&] { call.run(transformer_, in, {}, {}); }); });
  recorded.addresses = addresses;
  ++counts_.uncaptured;
}

void LayerGraphs::run(std::size_t place, const LayerCall& call) {
  ShapeGraphs& graphs = *places_.at(place).current;
  RecordedCall& recorded = graphs.calls.at(2 * static_cast<std::size_t>(call.layer) + (call.g.defined() ? 1 : 0));
  const Addresses addresses = addresses_of(call);
  if (recorded.addresses != addresses || !recorded.workspace.unmoved())
    return start_over(recorded, call, addresses, graphs.input);
  if (!recorded.graph) {
    recorded.graph = pool_.capture([this, call, &in = graphs.input] { call.run(transformer_, in, {}, {}); });
    ++counts_.captured;
  }
  recorded.graph->replay();
  ++counts_.replayed;
}

}  // namespace qft::parallel
