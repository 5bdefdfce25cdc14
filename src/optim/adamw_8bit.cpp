// AdamW with moments stored as 8-bit codes between steps. Each block of 256 elements, counted in its tensor, stores its largest
// magnitude in fp32 next to codes of the dynamic map. Tensors that bitsandbytes keeps in fp32 (small tensors and embeddings) are
// fp32 here too. A block that is cut between slices has the magnitude of the whole block on each of their ranks. If tensor ranks
// hold boxes that cut blocks, which boxes of columns do to every block, the tensor's owner updates it.
#include "qft/comm/communicator.h"
#include "qft/ops/dynamic_map.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rules.h"
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

namespace qft::optim {
namespace {

constexpr std::int64_t kBlock = 256, kLeast = 4096;  // bitsandbytes' blocksize and min_8bit_size
constexpr std::int64_t kPieceBlocks = 512;           // a piece fits in the cache
constexpr std::size_t kMoments = 2;

/// The map of a moment on a device, and the midpoints between its numbers.
struct Map {
  at::Tensor numbers, between;

  Map(bool is_signed, c10::Device device) {
    const auto& map = ops::dynamic_map(is_signed);
    const at::Tensor table = at::from_blob(const_cast<float*>(map.data()), {std::ssize(map)}, at::kFloat);
    between = (table.narrow(0, 0, 255) + table.narrow(0, 1, 255)).div_(2).to(device);
    numbers = table.clone().to(device);
  }
  /// Returns the codes of rows [blocks, 256] with magnitudes [blocks, 1]: the nearest number, the lower one in a tie.
  at::Tensor codes(const at::Tensor& rows, const at::Tensor& largest) const {
    const at::Tensor scaled = rows.mul(largest.clamp_min(1e-38).reciprocal_());
    return at::bucketize(scaled, between, /*out_int32=*/true).to(at::kByte);
  }
};

/// A moment of a block that is cut between ranks, in fp32 until the magnitude of the whole block is known.
struct Cut {
  at::Tensor row;             ///< [256], zero in other ranks' parts
  std::int64_t begin = 0;     ///< start of this rank's part in the block
  at::Tensor codes, largest;  ///< this rank's part; [1]
  std::size_t moment = 0, buffer = 0;
  std::int64_t position = 0;  ///< index in the buffer of the block's first element
};

class AdamW8bit : public Rule {
 public:
  explicit AdamW8bit(const Hyper& hyper) : adamw_(make_adamw(hyper)) {}

  bool step(const Update& u) override {
    if (u.state.size() == kMoments) {
      in_pieces(u, [&](const Update& piece) { adamw_->step(piece); });
      return false;
    }
    for (std::int64_t begin = 0; begin < u.master.numel();) {
      const std::int64_t bound = ((u.first + begin) / kBlock + kPieceBlocks) * kBlock - u.first;
      const std::int64_t end = std::min(bound, u.master.numel());
      step(u, begin, end - begin);
      begin = end;
    }
    return false;
  }

  /// The values to subtract are AdamW's step with learning rate 1 on weights that are 0.
  void compute_update(const WholeUpdate& whole) override {
    const at::Tensor values = whole.values.view(-1);
    for (std::int64_t begin = 0; begin < values.numel(); begin += kPieceBlocks * kBlock) {
      const std::int64_t count = std::min(kPieceBlocks * kBlock, values.numel() - begin);
      Update u;
      u.grads = values.narrow(0, begin, count);
      u.master = at::zeros({count}, values.options().dtype(at::toOpMathType(values.scalar_type())));
      for (std::size_t k = 0; k < kMoments; ++k) u.state.push_back(whole.state[k].view(-1).narrow(0, begin, count));
      for (std::size_t k = 0; k < kMoments; ++k)
        u.state.push_back(whole.state[kMoments + k].narrow(0, begin / kBlock, (count + kBlock - 1) / kBlock));
      u.learning_rate = 1.0;
      u.step = whole.step;
      u.first = begin;
      u.numel = values.numel();
      step(u, 0, count);
      u.grads.copy_(u.master.neg_());
    }
  }

  void agree(const Slices& slices) override {
    const std::vector<Cut> cuts = std::exchange(cuts_, {});
    if (slices.count() == 1) return;
    // One row per slice of each tensor rank: at most one of the blocks that begin in a slice continues in the next.
    const std::int64_t tensor_rank = slices.comm->rank() % slices.tensor_ranks;
    const at::Tensor all = at::zeros({std::ssize(slices.chunks) * slices.comm->size(), static_cast<std::int64_t>(kMoments)},
                                     at::TensorOptions().dtype(at::kFloat).device(slices.device));
    const auto place = [&](const Cut& cut) {
      const std::int64_t slice =
          static_cast<std::int64_t>(cut.buffer) * slices.count() + cut.position / slices.chunks[cut.buffer];
      return all[slice * slices.tensor_ranks + tensor_rank][static_cast<std::int64_t>(cut.moment)];
    };
    for (const Cut& cut : cuts) place(cut).copy_(cut.largest[0]);
    slices.comm->all_reduce(all.data_ptr(), static_cast<std::size_t>(all.numel()), DType::f32, comm::ReduceOp::max);
    for (const Cut& cut : cuts) {
      cut.largest.copy_(place(cut).unsqueeze(0));
      const at::Tensor codes = map(cut.moment, slices.device).codes(cut.row.unsqueeze(0), cut.largest.unsqueeze(1));
      cut.codes.copy_(codes[0].narrow(0, cut.begin, cut.codes.numel()));
    }
  }

 private:
  const Map& map(std::size_t moment, c10::Device device) {
    if (maps_.empty() || maps_[0].numbers.device() != device) maps_ = {Map(true, device), Map(false, device)};
    return maps_[moment];
  }

  void step(const Update& u, std::int64_t begin, std::int64_t count) {
    const std::int64_t first = u.first + begin, head = first % kBlock;
    const std::int64_t block = first / kBlock, blocks = (first + count - 1) / kBlock - block + 1;
    const std::int64_t block_here = block - u.first / kBlock;  // index of the block among this rank's magnitudes
    const at::ScalarType wide = at::toOpMathType(u.master.scalar_type());
    Update piece = u;
    piece.copy.reset();
    piece.master = u.master.narrow(0, begin, count).to(wide);
    piece.grads = u.grads.narrow(0, begin, count).to(wide);
    piece.state.clear();
    std::array<at::Tensor, kMoments> rows;
    for (std::size_t k = 0; k < kMoments; ++k) {
      const at::Tensor codes = u.state[k].narrow(0, begin, count);
      const at::Tensor flat = at::zeros({blocks * kBlock}, piece.master.options());
      flat.narrow(0, head, count).copy_(map(k, codes.device()).numbers.index_select(0, codes.to(at::kInt)));
      rows[k] = flat.view({blocks, kBlock});
      rows[k].mul_(u.state[kMoments + k].narrow(0, block_here, blocks).unsqueeze(1));
      piece.state.push_back(flat.narrow(0, head, count));
    }
    adamw_->step(piece);
    if (piece.master.scalar_type() != u.master.scalar_type()) u.master.narrow(0, begin, count).copy_(piece.master);
    for (std::size_t k = 0; k < kMoments; ++k) {
      const at::Tensor fp32 = rows[k].to(at::kFloat);
      const at::Tensor largest = u.state[kMoments + k].narrow(0, block_here, blocks);
      largest.copy_(fp32.abs().amax(1));
      u.state[k]
          .narrow(0, begin, count)
          .copy_(map(k, fp32.device()).codes(fp32, largest.unsqueeze(1)).view(-1).narrow(0, head, count));
      note_cuts(u, begin, count, k, fp32, largest);
    }
  }

  /// Notes the first and the last block of a piece, if other ranks hold a part of them.
  void note_cuts(const Update& u, std::int64_t begin, std::int64_t count, std::size_t moment, const at::Tensor& rows,
                 const at::Tensor& largest) {
    const std::int64_t first = u.first + begin, end = first + count, head = first % kBlock;
    const bool at_head = head != 0, at_tail = end % kBlock != 0 && end != u.numel;
    const auto note = [&](std::int64_t row) {
      const std::int64_t from = std::max(row * kBlock, head), to = std::min((row + 1) * kBlock, head + count);
      cuts_.push_back({rows[row].clone(), from - row * kBlock, u.state[moment].narrow(0, begin + from - head, to - from),
                       largest.narrow(0, row, 1), moment, u.buffer, u.position + begin - head + row * kBlock});
    };
    if (at_head) note(0);
    if (at_tail && !(at_head && rows.size(0) == 1)) note(rows.size(0) - 1);
  }

  std::unique_ptr<Rule> adamw_;
  std::vector<Map> maps_;
  std::vector<Cut> cuts_;
};

bool has_codes(const Param& param) {
  return param.numel() >= kLeast && param.place != Param::Place::embedding;
}

bool adamw_8bit_whole(const Param& param) {
  const bool whole_blocks = param.cut == Param::Cut::rows && param.numel() / param.shape[0] % kBlock == 0;
  return param.is_cut() && !whole_blocks && has_codes(param);
}

std::vector<StateSpec> adamw_8bit_state(const Param& param, const Hyper& /*hyper*/, const Precision& precision) {
  if (!has_codes(param)) {
    const at::ScalarType type = precision.state == at::kDouble ? at::kDouble : at::kFloat;
    return {{"exp_avg", type, param.shape}, {"exp_avg_sq", type, param.shape}};
  }
  const Shape blocks = {(param.numel() + kBlock - 1) / kBlock};
  const bool by_owner = adamw_8bit_whole(param);
  return {{"exp_avg", at::kByte, param.shape, by_owner ? 0 : 1},
          {"exp_avg_sq", at::kByte, param.shape, by_owner ? 0 : 1},
          {"exp_avg_absmax", at::kFloat, blocks, by_owner ? 0 : kBlock},
          {"exp_avg_sq_absmax", at::kFloat, blocks, by_owner ? 0 : kBlock}};
}

}  // namespace

RuleSpec adamw_8bit_rule() {
  return {.make = make_rule<AdamW8bit>, .state_of = adamw_8bit_state, .whole = adamw_8bit_whole};
}

}  // namespace qft::optim
