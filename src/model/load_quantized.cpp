#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/device/scalar_type.h"
#include "qft/model/load.h"
#include "qft/ops/quantized.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "read_into.h"
#include "sources.h"
#include "stored/stored_format.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace qft::model {
namespace {

struct Place {
  int unit;
  const ParamSpec* param;
};

std::vector<Place> quantized_params(const ModelSpec& spec) {
  std::vector<Place> all;
  for (int u = 0; u < spec.num_units(); ++u)
    for (const ParamSpec& param : spec.units[static_cast<std::size_t>(u)].params)
      if (param.is_quantized()) all.push_back({u, &param});
  return all;
}

/// Returns the parameter's packed bytes, read from files that hold it quantised.
at::Tensor stored(const ParamSpec& param, const StoredFormat& format, const io::ModelFiles& files, std::int64_t& read) {
  const at::Tensor bytes = at::zeros({param.packed_bytes()}, at::kByte);
  auto* to = bytes.data_ptr<std::uint8_t>();
  for (const std::string& weight : stored_weights(param)) {
    read += read_stored(format, files, weight, param.packed, to);
    to += param.packed.bytes;
  }
  return bytes;
}

/// Quantises the parameter's whole tensor from the files and returns its packed bytes; adds the bytes read to `read`.
at::Tensor quantized(const ParamSpec& param, const io::ModelFiles& files, std::int64_t& read) {
  const std::vector<Source> sources = sources_of(param, files);
  const at::ScalarType type = device::scalar_type_of(sources.front().at.entry->dtype);
  const at::Tensor values = at::empty({param.numel}, at::TensorOptions().dtype(type));
  for (const Source& source : sources) read += read_into(source, param, {values, 0});
  const at::Tensor bytes = at::empty({param.packed_bytes()}, at::kByte);
  try {
    ops::quantize(values, param.packed, bytes);
  } catch (const Error& e) {
    fail("'{}': {}: {}", files.dir().string(), param.name, e.what());
  }
  return bytes;
}

/// Copies the part of a parameter's bytes that this rank keeps.
void keep(const ParamSpec& param, const at::Tensor& bytes, const Shard& kept) {
  const std::int64_t begin = std::max(param.packed_offset, kept.begin);
  const std::int64_t end = std::min(param.packed_offset + param.packed_bytes(), kept.end());
  if (begin < end)
    kept.values.narrow(0, begin - kept.begin, end - begin).copy_(bytes.narrow(0, begin - param.packed_offset, end - begin));
}

}  // namespace

std::int64_t load_quantized_weights(const ModelSpec& spec, const io::ModelFiles& files, const PackedAccess& access,
                                    comm::Communicator& comm) {
  const std::vector<Place> places = quantized_params(spec);
  const auto ranks = static_cast<std::size_t>(comm.size()), rank = static_cast<std::size_t>(comm.rank());
  const auto format = spec.config.stored ? make_stored_format(*spec.config.stored) : nullptr;
  std::int64_t read = 0;
  for (std::size_t first = 0; first < places.size(); first += ranks) {
    at::Tensor mine;
    comm::agreed(comm, [&] {
      if (first + rank >= places.size()) return;
      const ParamSpec& param = *places[first + rank].param;
      mine = format ? stored(param, *format, files, read) : quantized(param, files, read);
    });
    for (std::size_t i = first; i < std::min(first + ranks, places.size()); ++i) {
      const ParamSpec& param = *places[i].param;
      const at::Tensor bytes = i == first + rank ? std::exchange(mine, {}) : at::empty({param.packed_bytes()}, at::kByte);
      comm.host().broadcast(bytes.data_ptr(), static_cast<std::size_t>(param.packed_bytes()), DType::u8,
                            static_cast<int>(i - first));
      keep(param, bytes, access(places[i].unit));
    }
  }
  return read;
}

}  // namespace qft::model
