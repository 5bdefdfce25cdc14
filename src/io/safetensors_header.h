// Parses and formats the JSON header of a safetensors file. Private to io.
#pragma once

#include "qft/io/safetensors.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qft::io {

/// The reference implementation's limit.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct Header {
  std::vector<TensorEntry> entries;  // sorted by file_offset, here counted from the start of the data
  Metadata metadata;
};

/// Throws Error (without the file's name) if the header violates the format.
Header parse_header(std::string_view json, std::uint64_t data_bytes);

/// Returns the header text, padded with blanks to a multiple of 8 bytes.
std::string format_header(const std::vector<TensorSpec>& tensors, const Metadata& metadata);

}  // namespace qft::io
