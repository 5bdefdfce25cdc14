// PiSSA's initialisation: each weight is decomposed by one rank, and rank 0 writes all factors.
#include "qft/model/pissa.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/io/safetensors.h"
#include "qft/model/load.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "initial_values.h"
#include "principal_factors.h"
#include "read_into.h"
#include "tensor_check.h"
#include <ATen/ops/empty.h>

namespace qft::model {
namespace {

/// A wrapped linear: its weight and factors.
struct Wrapped {
  const ParamSpec *base = nullptr, *a = nullptr, *b = nullptr;
  double scaling = 1.0;
};

const LoraRows& rows_of(const ModelSpec& spec, int layer, const ParamSpec& base) {
  for (const SubLayerSpec& sublayer : spec.layers[static_cast<std::size_t>(layer)])
    for (const ParamGroup& group : sublayer.params)
      for (const LoraRows& rows : group.lora)
        if (base.path == group.linears[rows.linear].path + ".weight") return rows;
  fail("'{}' is not a linear that LoRA wraps", base.name);
}

std::vector<Wrapped> wrapped_linears(const ModelSpec& spec) {
  std::vector<Wrapped> all;
  for (const UnitSpec& unit : spec.units) {
    std::map<std::string, Wrapped> of;
    for (const ParamSpec& p : unit.params)
      if (p.role == Role::lora_a)
        of[base_weight_of(p)].a = &p;
      else if (p.role == Role::lora_b)
        of[base_weight_of(p)].b = &p;
    for (const ParamSpec& p : unit.params)
      if (const auto found = of.find(p.name); found != of.end()) {
        found->second.base = &p;
        found->second.scaling = rows_of(spec, unit.layer, p).scaling;
        all.push_back(found->second);
      }
  }
  return all;
}

PrincipalFactors decompose(const Wrapped& linear, const io::ModelFiles& files, std::int64_t iterations, std::uint64_t seed) {
  const ParamSpec base = linear.base->whole(), a = linear.a->whole();
  const at::Tensor weight = at::empty(base.shape, at::kFloat), start = at::empty(a.shape, at::kFloat);
  for (const Source& source : sources_of(base, files)) read_into(source, base, {weight.view(-1), 0});
  fill_uniform(a, seed, 1.0, {start.view(-1), 0});
  try {
    return principal_factors(weight, a.shape[0], linear.scaling, iterations, start);
  } catch (const Error& e) {
    fail("'{}': {}: {}", files.dir().string(), base.name, e.what());
  }
}

std::optional<io::SafetensorsWriter> writer_of(const std::vector<Wrapped>& linears, io::Storage& storage,
                                               const std::filesystem::path& file) {
  std::vector<io::TensorSpec> specs;
  for (const Wrapped& linear : linears)
    for (const ParamSpec* factor : {linear.a, linear.b})
      specs.push_back({kPissaPrefix + factor->name, DType::f32, factor->shape});
  return std::optional<io::SafetensorsWriter>(std::in_place, storage, file, specs);
}

}  // namespace

void write_initial_factors(const ModelSpec& spec, const io::ModelFiles& files, std::uint64_t seed, io::Storage& storage,
                           const std::filesystem::path& file, comm::Communicator& comm) {
  const std::vector<Wrapped> linears = wrapped_linears(spec);
  const auto ranks = static_cast<std::size_t>(comm.size()), rank = static_cast<std::size_t>(comm.rank());
  std::optional<io::SafetensorsWriter> writer;
  comm::agreed(comm, [&] {
    if (rank == 0) writer = writer_of(linears, storage, file);
  });
  for (std::size_t first = 0; first < linears.size(); first += ranks) {
    PrincipalFactors mine;
    comm::agreed(comm, [&] {
      if (first + rank < linears.size())
        mine = decompose(linears[first + rank], files, spec.adapter.lora.pissa->iterations, seed);
    });
    std::vector<at::Tensor> of_all;
    for (std::size_t i = first; i < std::min(first + ranks, linears.size()); ++i)
      for (const bool a : {true, false}) {
        of_all.push_back(i == first + rank ? (a ? mine.a : mine.b)
                                           : at::empty((a ? linears[i].a : linears[i].b)->shape, at::kFloat));
        comm.host().broadcast(of_all.back().data_ptr(), static_cast<std::size_t>(of_all.back().numel()), DType::f32,
                              static_cast<int>(i - first));
      }
    comm::agreed(comm, [&] {
      if (!writer) return;
      for (const at::Tensor& factor : of_all) writer->append(factor.data_ptr(), factor.nbytes());
    });
  }
  comm::agreed(comm, [&] {
    if (writer) writer->finish();
  });
}

}  // namespace qft::model
