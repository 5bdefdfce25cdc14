#include "qft/optim/optimizer.h"

#include "qft/comm/communicator.h"
#include "qft/core/error.h"
#include "qft/device/upload.h"

#include <algorithm>
#include <utility>

#include "owners.h"
#include "rules.h"
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace qft::optim {

bool Optimizer::Buffer::has_whole() const {
  return std::any_of(pieces.begin(), pieces.end(), [](const Piece& p) { return p.whole; });
}

Optimizer::Optimizer(const RuleSpec& rule, std::vector<FlatParams> params, const Hyper& hyper, const Precision& precision,
                     comm::Communicator* ranks, int tensor_ranks)
    : spec_(rule), hyper_(hyper), precision_(precision), rule_(rule.make(hyper)), params_(std::move(params)) {
  hyper.args.require_only(rule.args, rule.name);
  for (std::size_t i = 0; i < params_.size(); ++i) {
    allocate(i, precision);
    cut(i);
    allocate_state(i, precision);
    slices_.chunks.push_back(params_[i].weights.numel());
  }
  if (!params_.empty()) slices_.device = params_[0].grads.device();
  if (ranks != nullptr) slices_.comm = slices_.device.is_cpu() ? &ranks->host() : ranks;
  slices_.tensor_ranks = tensor_ranks;
  if (spec_.whole != nullptr) assign_owners();
}

Optimizer::~Optimizer() = default;

void Optimizer::allocate(std::size_t i, const Precision& precision) {
  FlatParams& p = params_[i];
  QFT_ASSERT(p.weights.numel() == p.grads.numel(), "{}: {} weights, {} gradients", p.name, p.weights.numel(), p.grads.numel());
  for (Segment& segment : p.segments)
    if (segment.param.shape.empty()) segment.param.shape = {segment.end - segment.begin};
  const bool apart = p.weights.device() != p.grads.device();
  Buffer b{{}, {}, {}, precision.has_master_copy() || apart, {}, device::Event(p.weights.device())};
  b.master = b.has_copy ? p.weights.to(p.grads.device(), precision.master) : p.weights;
  if (apart && p.grads.is_cpu()) b.staging = device::host_tensor(p.weights.sizes(), p.weights.scalar_type(), p.weights.device());
  buffers_.push_back(std::move(b));
}

std::pair<std::int64_t, std::int64_t> Optimizer::here(std::size_t i, const Segment& segment) const {
  const std::int64_t begin = params_[i].begin, length = params_[i].weights.numel();
  return {std::max<std::int64_t>(segment.begin - begin, 0), std::min(segment.end - begin, length)};
}

/// If several segments are updated as one, the gaps between them are updated too.
void Optimizer::cut(std::size_t i) {
  const auto& segments = params_[i].segments;
  auto& pieces = buffers_[i].pieces;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const auto [begin, end] = here(i, segments[s]);
    if (begin >= end) continue;
    const Segment* before = pieces.empty() ? nullptr : &segments[pieces.back().segment];
    if (spec_.is_uniform() && before != nullptr && before->lr_factor == segments[s].lr_factor &&
        before->decay_factor == segments[s].decay_factor) {
      pieces.back().end = end;
    } else {
      pieces.push_back({begin, end, s, {}, spec_.whole != nullptr && spec_.whole(segments[s].param)});
    }
  }
}

void Optimizer::allocate_state(std::size_t i, const Precision& precision) {
  Buffer& b = buffers_[i];
  if (spec_.is_uniform()) {
    for (std::size_t s = 0; s < spec_.state.size(); ++s)
      b.state.push_back(at::zeros_like(b.master, b.master.options().dtype(precision.state)));
    for (Piece& piece : b.pieces)
      for (const at::Tensor& s : b.state) piece.state.push_back(s.narrow(0, piece.begin, piece.end - piece.begin));
    return;
  }
  for (Piece& piece : b.pieces) {
    const Segment& segment = params_[i].segments[piece.segment];
    const std::int64_t first = piece.begin + params_[i].begin - segment.begin, last = first + piece.end - piece.begin - 1;
    for (const StateSpec& spec : states_of(segment))
      if (spec.block_size > 0)
        piece.state.push_back(
            at::zeros({last / spec.block_size - first / spec.block_size + 1}, b.master.options().dtype(spec.type)));
  }
}

void Optimizer::assign_owners() {
  std::vector<Owned> all;
  for (std::size_t i = 0; i < params_.size(); ++i)
    for (std::size_t s = 0; s < params_[i].segments.size(); ++s)
      if (const Segment& x = params_[i].segments[s]; spec_.whole(x.param))
        all.push_back({i,
                       s,
                       x.param.shape,
                       x.param.as_stack(),
                       {{x.begin, x.end, x.boxes.empty() ? std::vector<Box>{Box::whole(x.param.shape)} : x.boxes}}});
  if (all.empty()) return;
  owners_ = std::make_unique<Owners>(std::move(all), slices_);
  for (Owned& owned : owners_->all())
    if (owners_->is_mine(owned))
      for (const StateSpec& spec : states_of(params_[owned.buffer].segments[owned.segment]))
        if (spec.block_size == 0)
          owned.state.push_back(at::zeros(spec.shape, buffers_[owned.buffer].master.options().dtype(spec.type)));
}

void Optimizer::step(double learning_rate, double grad_scale) {
  ++steps_;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    Buffer& b = buffers_[i];
    bool published = true;
    for (const Piece& piece : b.pieces) {
      const Update update = update_of(i, piece, learning_rate, grad_scale);
      if (piece.whole) {
        rule_->prepare(update);
      } else {
        published &= rule_->step(update);
      }
    }
    if (!published && !b.has_whole()) refresh_copies(i);
  }
  rule_->agree(slices_);
  if (owners_) step_whole(learning_rate, grad_scale);
}

void Optimizer::step_whole(double learning_rate, double grad_scale) {
  const auto part = [&](const Owned& owned) {
    const auto [begin, end] = here(owned.buffer, params_[owned.buffer].segments[owned.segment]);
    return params_[owned.buffer].grads.narrow(0, begin < end ? begin : 0, std::max<std::int64_t>(0, end - begin));
  };
  owners_->update_owned(part, [&](const Owned& owned, const at::Tensor& values) {
    const Segment& segment = params_[owned.buffer].segments[owned.segment];
    const auto number = static_cast<std::uint64_t>(segment.number < 0 ? segment.begin : segment.number);
    rule_->compute_update({values, owned.state, steps_, (std::uint64_t{owned.buffer} << 40) + number});
  });
  for (std::size_t i = 0; i < params_.size(); ++i) {
    if (!buffers_[i].has_whole()) continue;
    for (const Piece& piece : buffers_[i].pieces)
      if (piece.whole) apply_whole(update_of(i, piece, learning_rate, grad_scale));
    refresh_copies(i);
  }
}

Update Optimizer::update_of(std::size_t i, const Piece& piece, double learning_rate, double grad_scale) const {
  const auto part = [&](const at::Tensor& t) { return t.narrow(0, piece.begin, piece.end - piece.begin); };
  const Buffer& b = buffers_[i];
  const Segment& segment = params_[i].segments[piece.segment];
  Update u;
  u.master = part(b.master);
  u.grads = part(params_[i].grads);
  u.state = piece.state;
  if (b.has_copy && !b.staging.defined()) u.copy = part(params_[i].weights);
  u.learning_rate = learning_rate * segment.lr_factor;
  u.weight_decay = hyper_.weight_decay * segment.decay_factor;
  u.grad_scale = grad_scale;
  u.step = steps_;
  u.position = params_[i].begin + piece.begin;
  u.first = u.position - segment.begin;
  u.numel = segment.end - segment.begin;
  u.buffer = i;
  return u;
}

std::vector<HeldState> Optimizer::held_states(std::size_t i, std::int64_t segment_begin) const {
  const FlatParams& p = params_.at(i);
  const auto segment =
      std::find_if(p.segments.begin(), p.segments.end(), [&](const Segment& s) { return s.begin == segment_begin; });
  QFT_ASSERT(segment != p.segments.end(), "{}: no segment begins at {}", p.name, segment_begin);
  const auto index = static_cast<std::size_t>(segment - p.segments.begin());
  const auto [begin, end] = here(i, *segment);
  const std::int64_t first = std::max<std::int64_t>(0, begin + p.begin - segment->begin);
  const Buffer& b = buffers_[i];
  const auto piece = std::find_if(b.pieces.begin(), b.pieces.end(), [&](const Piece& x) { return x.segment == index; });
  std::vector<HeldState> held;
  std::size_t next = 0, owned_next = 0;
  for (const StateSpec& spec : states_of(*segment)) {
    HeldState h{spec, b.master.narrow(0, 0, 0).to(spec.type)};
    if (spec.block_size == 0) {
      const auto& all = owners_->all();
      const auto owned =
          std::find_if(all.begin(), all.end(), [&](const Owned& o) { return o.buffer == i && o.segment == index; });
      if (owners_->is_mine(*owned)) h.values = owned->state[owned_next].view(-1);
      ++owned_next;
    } else if (begin < end) {
      h.values = spec_.is_uniform() ? b.state[next].narrow(0, begin, end - begin) : piece->state[next];
      h.begin = first / spec.block_size;
      h.shared = first % spec.block_size == 0 ? 0 : 1;
      ++next;
    }
    held.push_back(std::move(h));
  }
  return held;
}

void Optimizer::refresh_copies(std::size_t i) {
  const Buffer& b = buffers_[i];
  if (!b.has_copy) return;
  b.uploaded.synchronize();  // the previous upload must end before its source is overwritten
  b.copy_in(params_[i].weights).copy_(b.master);
  upload(i);
}

void Optimizer::upload(std::size_t i) {
  Buffer& b = buffers_[i];
  if (!b.staging.defined()) return;
  params_[i].weights.copy_(b.staging, /*non_blocking=*/true);
  b.uploaded.record(device::Stream::current(params_[i].weights.device()));
}

void Optimizer::refresh_copies() {
  for (std::size_t i = 0; i < params_.size(); ++i) refresh_copies(i);
}

std::int64_t Optimizer::bytes() const {
  std::int64_t total = 0;
  const auto add = [&](const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& t : tensors) total += static_cast<std::int64_t>(t.nbytes());
  };
  for (const Buffer& b : buffers_) {
    if (b.has_copy) add({b.master});
    add(b.state);
    if (!spec_.is_uniform())
      for (const Piece& piece : b.pieces) add(piece.state);
  }
  if (owners_)
    for (const Owned& owned : owners_->all()) add(owned.state);
  return total;
}

}  // namespace qft::optim
