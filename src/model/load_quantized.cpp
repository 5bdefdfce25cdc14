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
#include <ATen/ops/empty.h>

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

/// Its bytes, from the whole tensor in the files; adds what was read to `read`.
at::Tensor quantized(const ParamSpec& param, const io::ModelFiles& files, std::int64_t& read) {
  const std::vector<Source> sources = sources_of(param, files);
  const at::ScalarType type = device::scalar_type_of(sources.front().at.entry->dtype);
  const at::Tensor values = at::empty({param.numel}, at::TensorOptions().dtype(type));
  for (const Source& source : sources) read += read_into(source, param, {values, 0});
  const at::Tensor bytes = at::empty({param.packed.bytes}, at::kByte);
  try {
    ops::quantize(values, param.packed, bytes);
  } catch (const Error& e) {
    fail("'{}': {}: {}", files.dir().string(), param.name, e.what());
  }
  return bytes;
}

/// Copies what this rank keeps of a parameter's bytes.
void keep(const ParamSpec& param, const at::Tensor& bytes, const Shard& kept) {
  const std::int64_t begin = std::max(param.packed_offset, kept.begin);
  const std::int64_t end = std::min(param.packed_offset + param.packed.bytes, kept.end());
  if (begin < end)
    kept.values.narrow(0, begin - kept.begin, end - begin).copy_(bytes.narrow(0, begin - param.packed_offset, end - begin));
}

}  // namespace

std::int64_t load_quantized_weights(const ModelSpec& spec, const io::ModelFiles& files, const PackedAccess& access,
                                    comm::Communicator& comm) {
  const std::vector<Place> places = quantized_params(spec);
  const auto ranks = static_cast<std::size_t>(comm.size()), rank = static_cast<std::size_t>(comm.rank());
  std::int64_t read = 0;
  for (std::size_t first = 0; first < places.size(); first += ranks) {
    at::Tensor mine;
    comm::agreed(comm, [&] {
      if (first + rank < places.size()) mine = quantized(*places[first + rank].param, files, read);
    });
    for (std::size_t i = first; i < std::min(first + ranks, places.size()); ++i) {
      const ParamSpec& param = *places[i].param;
      const at::Tensor bytes = i == first + rank ? std::exchange(mine, {}) : at::empty({param.packed.bytes}, at::kByte);
      comm.host().broadcast(bytes.data_ptr(), static_cast<std::size_t>(param.packed.bytes), DType::u8,
                            static_cast<int>(i - first));
      keep(param, bytes, access(places[i].unit));
    }
  }
  return read;
}

}  // namespace qft::model
