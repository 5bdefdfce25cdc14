#include "gated_delta_cuda.h"

#include "qft/device/upload.h"

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>

#include <ATen/ops/empty.h>

namespace qft::ops {
namespace {

template <class T>
void append(std::vector<std::int32_t>& to, const std::vector<T>& entries) {
  static_assert(sizeof(T) % sizeof(std::int32_t) == 0 && std::is_trivially_copyable_v<T>);
  const auto* begin = reinterpret_cast<const std::int32_t*>(entries.data());
  to.insert(to.end(), begin, begin + entries.size() * sizeof(T) / sizeof(std::int32_t));
}

/// The waves and their contents.
struct Division {
  std::vector<DeltaWave> waves;
  std::vector<DeltaChunk> chunks;
  std::vector<DeltaChain> chains, segments;

  explicit Division(const PackedSequences& sequences) {
    std::int32_t kept = 0;
    for (std::size_t s = 0; s + 1 < sequences.cu_seqlens.size(); ++s) {
      const std::int32_t begin = sequences.cu_seqlens[s], end = sequences.cu_seqlens[s + 1];
      for (std::int32_t at = begin; at < end; at += kSegment)
        add_segment(at, std::min(at + kSegment, end), at == begin ? -1 : kept++, at == begin);
    }
  }

 private:
  static constexpr auto kSegment = static_cast<std::int32_t>(kDeltaSegment), kChunk = static_cast<std::int32_t>(kDeltaChunk);

  void add_segment(std::int32_t begin, std::int32_t end, std::int32_t kept, bool starts) {
    const std::int32_t count = (end - begin + kChunk - 1) / kChunk;
    const bool opens = waves.empty() || waves.back().chunks + count > kDeltaWaveChunks;
    if (opens) waves.push_back({std::ssize(chunks), 0, std::ssize(chains), 0, std::ssize(segments), 0});
    DeltaWave& wave = waves.back();
    const auto first = static_cast<std::int32_t>(wave.chunks);
    if (!starts && opens) chains.back().after = 1;
    if (starts || opens) {
      chains.push_back({first, 0, starts ? 0 : 1, 0});
      ++wave.chains;
    }
    chains.back().count += count;
    segments.push_back({first, count, 0, 0});
    ++wave.segments;
    for (std::int32_t at = begin; at < end; at += kChunk)
      chunks.push_back({at, std::min(kChunk, end - at), at == begin ? kept : -1});
    wave.chunks += count;
  }
};

}  // namespace

DeltaWork::DeltaWork(const PackedSequences& sequences, const DeltaShape& shape, c10::Device device, bool is_backward)
    : backward(is_backward) {
  Division all(sequences);
  std::vector<std::int32_t> entries;
  append(entries, all.chunks);
  chains_at = std::ssize(entries);
  append(entries, all.chains);
  segments_at = std::ssize(entries);
  append(entries, all.segments);
  waves = std::move(all.waves);
  if (waves.empty()) return;
  for (const DeltaWave& wave : waves) max_chunks = std::max(max_chunks, wave.chunks);
  table = device::upload(std::span<const std::int32_t>(entries), device);
  scratch = at::empty({DeltaScratch::floats(shape, max_chunks, backward)}, at::TensorOptions(at::kFloat).device(device));
}

std::int64_t delta_work_bytes(const DeltaShape& shape, std::int64_t chunks, bool backward) {
  const std::int64_t table = chunks * static_cast<std::int64_t>(sizeof(DeltaChunk) + 2 * sizeof(DeltaChain));
  return DeltaScratch::floats(shape, std::min(chunks, kDeltaWaveChunks), backward) * std::int64_t{sizeof(float)} + table;
}

}  // namespace qft::ops
