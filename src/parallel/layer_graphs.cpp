#include "qft/parallel/layer_graphs.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/upload.h"

namespace qft::parallel {
namespace {

const void* address(const at::Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }

/// The sequence boundaries of a micro-batch, padded to its bucket.
std::vector<std::int32_t> padded_bounds(std::vector<std::int32_t> bounds, const Bucket& bucket) {
  bounds.resize(static_cast<std::size_t>(bucket.sequences) + 1, static_cast<std::int32_t>(bucket.tokens));
  return bounds;
}

/// Fills the rows from `count` on with copies of earlier ones: any token would do, but these are sure to give finite numbers.
void repeat_rows(const at::Tensor& tokens, std::int64_t count) {
  if (count == 0) tokens.zero_();
  for (std::int64_t filled = count; count > 0 && filled < tokens.numel();) {
    const std::int64_t n = std::min(count, tokens.numel() - filled);
    tokens.narrow(0, filled, n).copy_(tokens.narrow(0, 0, n), /*non_blocking=*/true);
    filled += n;
  }
}

model::MicroInput room_for(const Bucket& bucket, c10::Device device) {
  const auto integers = at::TensorOptions().dtype(at::kInt).device(device);
  model::MicroInput in;
  in.tokens = at::zeros({bucket.tokens}, integers);
  in.positions = at::zeros({bucket.tokens}, integers);
  in.sequences.max_length = static_cast<std::int32_t>(bucket.tokens);
  if (!device.is_cpu()) in.sequences.device_cu_seqlens = at::zeros({bucket.sequences + 1}, integers);
  return in;
}

}  // namespace

Bucket bucket_of(const model::MicroInput& in) {
  return Bucket::of(in.num_tokens(), in.sequences.num_sequences());
}

LayerGraphs::LayerGraphs(model::Transformer& transformer) : transformer_(transformer), pool_(transformer.device()) {}
LayerGraphs::~LayerGraphs() = default;

const model::MicroInput& LayerGraphs::admit(std::size_t slot, const model::MicroInput& in) {
  const Bucket bucket = bucket_of(in);
  if (slots_.size() <= slot) slots_.resize(slot + 1);
  model::MicroInput& padded = shape_of(slots_[slot], bucket).input;
  const std::int64_t tokens = in.num_tokens();
  padded.tokens.narrow(0, 0, tokens).copy_(in.tokens, /*non_blocking=*/true);
  repeat_rows(padded.tokens, tokens);
  padded.positions.narrow(0, 0, tokens).copy_(in.positions, /*non_blocking=*/true);
  at::Tensor added_positions = padded.positions.narrow(0, tokens, bucket.tokens - tokens);
  at::arange_out(added_positions, added_positions.numel());
  padded.sequences.cu_seqlens = padded_bounds(in.sequences.cu_seqlens, bucket);
  if (padded.sequences.device_cu_seqlens.defined())
    padded.sequences.device_cu_seqlens.copy_(device::upload(padded.sequences.cu_seqlens, transformer_.device()), /*non_blocking=*/true);
  padded.labels = in.labels;
  return padded;
}

LayerGraphs::Shape& LayerGraphs::shape_of(Slot& slot, const Bucket& bucket) {
  auto found = slot.shapes.find(bucket);
  if (found == slot.shapes.end()) {
    if (slot.shapes.size() == kBuckets) forget_oldest(slot);
    auto shape = std::make_unique<Shape>();
    shape->input = room_for(bucket, transformer_.device());
    shape->calls.resize(2 * static_cast<std::size_t>(transformer_.spec().config.num_layers));
    found = slot.shapes.emplace(bucket, std::move(shape)).first;
  }
  slot.current = found->second.get();
  slot.current->used = ++clock_;
  return *slot.current;
}

void LayerGraphs::forget_oldest(Slot& slot) {
  const auto oldest = std::min_element(slot.shapes.begin(), slot.shapes.end(),
                                       [](const auto& a, const auto& b) { return a.second->used < b.second->used; });
  counts_.forgotten += std::ranges::count_if(oldest->second->calls, [](const Recorded& r) { return r.graph != nullptr; });
  slot.shapes.erase(oldest);
}

LayerGraphs::Addresses LayerGraphs::addresses_of(const LayerCall& call) const {
  const auto& rope = transformer_.rope();
  Addresses all = {address(call.y),      address(call.g),  address(call.flat.frozen), address(call.flat.trainable),
                   address(call.flat.grad), address(rope.cos), address(rope.sin)};
  for (const model::SubLayerSaved& s : call.saved.sublayers) {
    all.insert(all.end(), {address(s.x), address(s.rstd)});
    for (const at::Tensor& t : s.tensors) all.push_back(address(t));
    for (const at::Tensor& t : s.lora) all.push_back(address(t));
  }
  return all;
}

void LayerGraphs::start_over(Recorded& recorded, const LayerCall& call, const Addresses& addresses, const model::MicroInput& in) {
  if (recorded.graph) {
    ++counts_.moved;
    log::debug("cuda_graphs: layer {} is captured again, because memory that it uses has moved", call.layer);
  }
  if (counts_.costs_more_than_it_saves() && !std::exchange(warned_, true))
    log::warn("cuda_graphs: {} graphs were discarded because memory that they use had moved, {} because micro-batches have more than {} "
              "shapes; {} replays: capturing costs more than it saves, so remove the key or set packing: true",
              counts_.moved, counts_.forgotten, kBuckets, counts_.replayed);
  recorded = {};
  recorded.workspace = transformer_.workspace().places_used_by([&] { pool_.warm_up([&] { call.run(transformer_, in, {}); }); });
  recorded.addresses = addresses;
  ++counts_.by_kernels;
}

void LayerGraphs::run(std::size_t slot, const LayerCall& call) {
  Shape& shape = *slots_.at(slot).current;
  Recorded& recorded = shape.calls.at(2 * static_cast<std::size_t>(call.layer) + (call.g.defined() ? 1 : 0));
  const Addresses addresses = addresses_of(call);
  if (recorded.addresses != addresses || !recorded.workspace.unmoved())
    return start_over(recorded, call, addresses, shape.input);
  if (!recorded.graph) {
    recorded.graph = pool_.capture([this, call, &in = shape.input] { call.run(transformer_, in, {}); });
    ++counts_.captured;
  }
  recorded.graph->replay();
  ++counts_.replayed;
}

}  // namespace qft::parallel
