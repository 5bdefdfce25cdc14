#include "qft/ops/cpu/delta_net_kernels.h"

#include <algorithm>
#include <vector>

#include "../common/tensors_cpu.h"
#include "../linear/brgemm_cpu.h"
#include "gated_delta_paths.h"

namespace qft::ops::kernels {
namespace {

constexpr std::int64_t kSegmentChunks = kDeltaSegment / kDeltaChunk;

std::int64_t chunks(std::int64_t tokens) {
  return (tokens + kDeltaChunk - 1) / kDeltaChunk;
}

template <class T>
cpu::DeltaRule<T> arguments(const GatedDeltaTensors& in) {
  cpu::DeltaRule<T> args{};
  args.q = head_rows<const T>(in.q), args.k = head_rows<const T>(in.k), args.v = head_rows<const T>(in.v);
  args.g = in.g.const_data_ptr<float>(), args.beta = in.beta.const_data_ptr<float>();
  args.value_heads = in.v.size(1), args.group = in.v.size(1) / in.k.size(1);
  args.key_dim = in.k.size(2), args.value_dim = in.v.size(2);
  return args;
}
DeltaShape shape_of(const GatedDeltaTensors& in) {
  return {in.k.size(1), in.v.size(1), in.k.size(2), in.v.size(2)};
}

/// Sizes per key head, in elements.
struct Sizes {
  std::int64_t group, state, keys, rows, scratch;
  explicit Sizes(const DeltaShape& s)
      : group(s.value_heads / s.key_heads),
        state(group * s.key_dim * s.value_dim),
        keys(s.key_dim * kDeltaChunk),
        rows(group * kDeltaChunk * s.value_dim),
        scratch(cpu::delta_scratch_elements(s.key_dim, s.value_dim)) {}
  std::int64_t sums() const { return group * kDeltaChunk; }
};

/// A thread's memory: kernel scratch, and a key head's data for consecutive chunks.
class ThreadMemory {
 public:
  /// Returns the bytes for `chunks` chunks, with a state before each and one after the last.
  static std::int64_t bytes(const Sizes& s, std::int64_t chunks, bool backward) {
    const std::int64_t floats = s.scratch + s.keys + s.rows + chunks * (s.state + s.rows) + s.state + (backward ? s.state : 0);
    return chunks * s.sums() * std::int64_t{sizeof(double)} + floats * std::int64_t{sizeof(float)};
  }

  ThreadMemory(const Sizes& s, std::int64_t chunks, std::byte* from) : s_(s) {
    sums_ = reinterpret_cast<double*>(from);
    scratch = reinterpret_cast<float*>(sums_ + chunks * s.sums());
    keys_ = scratch + s.scratch;
    updates_ = keys_ + s.keys;
    residuals_ = updates_ + s.rows;
    states_ = residuals_ + chunks * s.rows;
    gstates = states_ + (chunks + 1) * s.state;
  }

  float* states(std::int64_t chunk) const { return states_ + chunk * s_.state; }
  float* residuals(std::int64_t chunk) const { return residuals_ + chunk * s_.rows; }
  /// Keys and updates hold the latest chunk's.
  cpu::DeltaMemory of(std::int64_t chunk) const {
    return {states(chunk), keys_, updates_, sums_ + chunk * s_.sums(), residuals(chunk)};
  }

  float* scratch;
  float* gstates;  ///< backward

 private:
  Sizes s_;
  double* sums_;
  float *keys_, *updates_, *residuals_, *states_;
};

/// A packed sequence, and the index of its first kept state.
struct Sequence {
  std::int64_t first, rows, kept;
};
/// Returns the non-empty sequences, the longest first, so that threads finish at about the same time.
std::vector<Sequence> sequences_of(const PackedSequences& packed) {
  std::vector<Sequence> all;
  std::int64_t kept = 0;
  for (std::size_t s = 0; s + 1 < packed.cu_seqlens.size(); ++s) {
    const std::int64_t first = packed.cu_seqlens[s], rows = packed.cu_seqlens[s + 1] - first;
    if (rows > 0) all.push_back({first, rows, kept});
    if (rows > 0) kept += (rows - 1) / kDeltaSegment;
  }
  std::ranges::stable_sort(all, std::greater(), &Sequence::rows);
  return all;
}

/// Runs f(sequence, key head, the thread's memory) as tasks.
template <class F>
void for_heads(const std::vector<Sequence>& sequences, const DeltaShape& shape, std::int64_t chunks, bool backward,
               Workspace& workspace, const F& f) {
  const Sizes sizes(shape);
  const std::int64_t bytes = blocked::padded(ThreadMemory::bytes(sizes, chunks, backward), 64);
  auto* memory = blocked::scratch<std::byte>(workspace, "op.delta_rule", at::get_num_threads() * bytes);
  const auto count = static_cast<std::int64_t>(sequences.size());
  blocked::for_tasks(count * shape.key_heads, [&](std::int64_t task, std::int64_t thread) {
    f(sequences[static_cast<std::size_t>(task / shape.key_heads)], task % shape.key_heads,
      ThreadMemory(sizes, chunks, memory + thread * bytes));
  });
}

/// Returns a key head's part of kept state `index` in [.., value heads, Dk, Dv].
float* kept_state(const at::Tensor& states, std::int64_t index, std::int64_t key_head, const Sizes& s) {
  return states.data_ptr<float>() + index * states.stride(0) + key_head * s.state;
}

template <class T>
void forward(const GatedDeltaTensors& in, const PackedSequences& packed, const at::Tensor& out, const at::Tensor& states,
             Workspace& workspace) {
  const Sizes sizes(shape_of(in));
  cpu::DeltaRule<T> args = arguments<T>(in);
  args.out = head_rows<T>(out);
  const auto advance = cpu::delta_advance<T>();
  for_heads(sequences_of(packed), shape_of(in), 1, false, workspace,
            [&](const Sequence& s, std::int64_t head, const ThreadMemory& memory) {
              float* state = memory.states(0);
              std::fill_n(state, sizes.state, 0.0F);
              for (std::int64_t at = 0; at < s.rows; at += kDeltaChunk) {
                if (at > 0 && at % kDeltaSegment == 0 && states.defined())
                  std::copy_n(state, sizes.state, kept_state(states, s.kept + at / kDeltaSegment - 1, head, sizes));
                advance(args, {head, s.first + at, 0, std::min(kDeltaChunk, s.rows - at)}, memory.of(0), memory.scratch);
              }
            });
}

/// Computes the gradients of tokens [begin, end) for one head. Recomputes the states and residuals of these chunks from the first
/// chunk's states.
template <class T>
void segment_backward(const cpu::DeltaRule<T>& args, std::int64_t head, std::int64_t begin, std::int64_t end, const Sizes& sizes,
                      const ThreadMemory& memory) {
  const auto rows_of = [&](std::int64_t chunk) {
    const std::int64_t at = begin + chunk * kDeltaChunk;
    return cpu::DeltaRows{head, at, 0, std::min(kDeltaChunk, end - at)};
  };
  const std::int64_t count = chunks(end - begin);
  for (std::int64_t chunk = 0; chunk < count; ++chunk) {
    std::copy_n(memory.states(chunk), sizes.state, memory.states(chunk + 1));
    cpu::DeltaMemory next = memory.of(chunk);
    next.states = memory.states(chunk + 1);
    cpu::delta_advance<T>()(args, rows_of(chunk), next, memory.scratch);
  }
  for (std::int64_t chunk = count - 1; chunk >= 0; --chunk)
    cpu::delta_backward<T>()(args, rows_of(chunk), memory.of(chunk), memory.gstates, memory.scratch);
}

template <class T>
void backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states, const PackedSequences& packed,
              const GatedDeltaTensors& grads, Workspace& workspace) {
  const Sizes sizes(shape_of(in));
  const std::vector<Sequence> sequences = sequences_of(packed);
  if (sequences.empty()) return;
  cpu::DeltaRule<T> args = arguments<T>(in);
  args.gout = head_rows<const T>(gout);
  args.gq = head_rows<T>(grads.q), args.gk = head_rows<T>(grads.k), args.gv = head_rows<T>(grads.v);
  args.gg = grads.g.data_ptr<float>(), args.gbeta = grads.beta.data_ptr<float>();
  for_heads(sequences, shape_of(in), std::min(kSegmentChunks, chunks(sequences.front().rows)), true, workspace,
            [&](const Sequence& s, std::int64_t head, const ThreadMemory& memory) {
              std::fill_n(memory.gstates, sizes.state, 0.0F);
              for (std::int64_t segment = (s.rows - 1) / kDeltaSegment; segment >= 0; --segment) {
                const std::int64_t begin = segment * kDeltaSegment, end = std::min(begin + kDeltaSegment, s.rows);
                if (segment > 0)
                  std::copy_n(kept_state(states, s.kept + segment - 1, head, sizes), sizes.state, memory.states(0));
                else
                  std::fill_n(memory.states(0), sizes.state, 0.0F);
                segment_backward<T>(args, head, s.first + begin, s.first + end, sizes, memory);
              }
            });
}

template <class T>
void decode(const GatedDeltaTensors& in, std::span<const RecurrentSequence> fresh, const at::Tensor& out, Workspace& workspace) {
  const Sizes sizes(shape_of(in));
  std::vector<Sequence> sequences;  // kept: index of the sequence
  std::int64_t first = 0;
  for (const RecurrentSequence& s : fresh) {
    sequences.push_back({first, s.new_tokens, std::ssize(sequences)});
    first += s.new_tokens;
  }
  cpu::DeltaRule<T> args = arguments<T>(in);
  args.out = head_rows<T>(out);
  const auto advance = cpu::delta_advance<T>();
  for_heads(sequences, shape_of(in), 1, false, workspace, [&](const Sequence& s, std::int64_t head, const ThreadMemory& memory) {
    const GatedDeltaState& state = *fresh[static_cast<std::size_t>(s.kept)].state;
    const cpu::DeltaMemory own{state.state.data_ptr<float>() + head * sizes.state,
                               state.keys.data_ptr<float>() + head * sizes.keys,
                               state.updates.data_ptr<float>() + head * sizes.rows,
                               state.decay.data_ptr<double>() + head * sizes.sums(), memory.residuals(0)};
    for (std::int64_t at = 0, n = 0; at < s.rows; at += n) {
      const std::int64_t before = (state.tokens + at) % kDeltaChunk;
      n = std::min(kDeltaChunk - before, s.rows - at);
      advance(args, {head, s.first + at, before, n}, own, memory.scratch);
    }
  });
  for (const RecurrentSequence& s : fresh) s.state->tokens += s.new_tokens;
}

}  // namespace

bool supports_delta(c10::Device device, at::ScalarType dtype) {
  return device.is_cpu() && (dtype == at::kFloat || dtype == at::kBFloat16);
}

void delta_forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out, const at::Tensor& states,
                   Workspace& workspace) {
  cpu::with_kernel_type(in.v, [&]<class T>() { forward<T>(in, sequences, out, states, workspace); });
}

void delta_backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                    const PackedSequences& sequences, const GatedDeltaTensors& grads, Workspace& workspace) {
  cpu::with_kernel_type(in.v, [&]<class T>() { backward<T>(gout, in, states, sequences, grads, workspace); });
}

void delta_decode(const GatedDeltaTensors& in, std::span<const RecurrentSequence> sequences, const at::Tensor& out,
                  Workspace& workspace) {
  cpu::with_kernel_type(in.v, [&]<class T>() { decode<T>(in, sequences, out, workspace); });
}

std::int64_t delta_scratch_bytes(const DeltaShape& shape, std::int64_t longest, bool backward) {
  const std::int64_t held = backward ? std::clamp<std::int64_t>(chunks(longest), 1, kSegmentChunks) : 1;
  return at::get_num_threads() * blocked::padded(ThreadMemory::bytes(Sizes(shape), held, backward), 64);
}

}  // namespace qft::ops::kernels
