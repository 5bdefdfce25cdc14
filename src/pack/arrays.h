// The table of the pack's datasets, used by writer, reader and verification.
#pragma once

#include "qft/io/hdf5.h"
#include "qft/pack/format.h"

#include <array>
#include <cstdint>
#include <optional>

namespace qft::pack {

struct PackArrayInfo {
  const char* name;
  io::h5::Type type;
  std::uint64_t columns;
  std::optional<PackArray> offsets_into;  // the array whose rows these offsets delimit: one entry more than there are runs
  std::optional<PackArray> row_per;       // the offsets that have one run for each row (or offset) of this array
};

inline constexpr std::array<PackArrayInfo, kPackArrays> kPackArrayInfo = {{
    {"tokens", io::h5::Type::i32, 1, {}, {}},
    {"sequence_offsets", io::h5::Type::i64, 1, PackArray::tokens, {}},
    {"item_offsets", io::h5::Type::i64, 1, PackArray::sequence_offsets, {}},
    {"label_span_offsets", io::h5::Type::i64, 1, PackArray::label_spans, PackArray::sequence_offsets},
    {"label_spans", io::h5::Type::i32, 2, {}, {}},
    {"item_tokens", io::h5::Type::i32, 1, {}, PackArray::item_offsets},
    {"item_labels", io::h5::Type::i32, 1, {}, PackArray::item_offsets},
    {"category", io::h5::Type::i32, 1, {}, PackArray::item_offsets},
    {"dataset", io::h5::Type::i32, 1, {}, PackArray::item_offsets},
    {"source_index", io::h5::Type::i64, 1, {}, PackArray::item_offsets},
    {"tag_offsets", io::h5::Type::i64, 1, PackArray::tags, PackArray::item_offsets},
    {"tags", io::h5::Type::u8, 1, {}, {}},
    {"item_crc32c", io::h5::Type::u32, 2, {}, PackArray::item_offsets},
    {"label_span_weights", io::h5::Type::f32, 1, {}, {}},
}};

inline constexpr const char* kFrameCrc = "frame_crc32c";

constexpr std::size_t index_of(PackArray array) {
  return static_cast<std::size_t>(array);
}
constexpr const PackArrayInfo& info_of(PackArray array) {
  return kPackArrayInfo[index_of(array)];
}

/// True if a pack has the array.
constexpr bool has_array(std::size_t array, bool weighted) {
  return weighted || array != index_of(PackArray::label_span_weights);
}

}  // namespace qft::pack
