// Weights from and to files, by logical name.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/io/model_files.h"
#include "qft/io/storage.h"
#include "qft/model/spec.h"
#include "qft/model/weights.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// Gives what this rank holds of the box of a parameter of a unit: the whole, a part, or nothing (no elements).
using ParamAccess = std::function<Shard(int unit, const ParamSpec& param)>;

/// The values [numel] of a whole parameter as the tensors that files have for it, in order: views, or a copy where files have
/// another order of elements.
std::vector<std::pair<FileTensor, at::Tensor>> as_in_files(const ParamSpec& param, const at::Tensor& values);

/// How a model's files hold the linears that config.json says are quantised: they are kept so. `files` must outlive it; nullptr:
/// as config.json says, for plans.
AtRest at_rest_of(const StoredQuantization& stored, const io::ModelFiles* files);

/// Throws as load_base_weights() for what the files' headers show: a missing, an unknown or another tensor. Reads no data.
void require_base_weights(const ModelSpec& spec, const io::ModelFiles& files);
/// The same check of an adapter's files.
void require_adapter(const ModelSpec& spec, const std::filesystem::path& dir);

/// Fills every base parameter (Role::base) that is not quantised from a model directory. Returns the bytes read. Throws Error
/// naming the tensor, both shapes and the file; also for tensors in the files that the architecture does not have.
std::int64_t load_base_weights(const ModelSpec& spec, const io::ModelFiles& files, const ParamAccess& access);

/// Gives what this rank keeps of the bytes of a unit's quantised weights.
using PackedAccess = std::function<Shard(int unit)>;

/// Fills every quantised parameter: one rank reads a whole tensor, quantises it unless the files have it so, and all get its
/// bytes. Returns the bytes that this rank read. Collective over `comm`; throws Error, on all ranks, where a weight is not
/// finite, or where what belongs to a quantised weight in the files is damaged.
std::int64_t load_quantized_weights(const ModelSpec& spec, const io::ModelFiles& files, const PackedAccess& access,
                                    comm::Communicator& comm);

/// Where a head of sequences is (Role::value_head).
struct HeadFile {
  std::filesystem::path path;  ///< empty: nowhere
  std::string prefix = {};     ///< of its tensors' names
};
/// Of a reward model: beside the adapter or, without one (an empty path), the model. A classifier's is among the adapter's own
/// tensors, if it has any, else among the model's.
HeadFile find_head(const ModelSpec& spec, const io::ModelFiles& files, const std::filesystem::path& adapter);
/// Throws Error for what the file's header shows.
void require_value_head(const ModelSpec& spec, const HeadFile& file);
/// Fills the head from the file.
void load_value_head(const ModelSpec& spec, const HeadFile& file, const ParamAccess& access);
/// Of a reward model torch's initialisation of a linear, weight and bias uniform in +-1/sqrt(in_features); of a classifier
/// transformers', normal with a deviation of initializer_range. By numbers as in init_adapter().
void init_value_head(const ModelSpec& spec, std::uint64_t seed, const ParamAccess& access);

/// PEFT's initialisation: A uniform in +-1/sqrt(in_features) (kaiming_uniform with a = sqrt 5), B zero. Counter-based
/// from (seed, name, index): the same on any number of ranks, whatever their slices. Magnitudes are left to init_magnitude().
void init_adapter(const ModelSpec& spec, std::uint64_t seed, const ParamAccess& access);
/// PiSSA's start: A0 and B0 of each linear that LoRA wraps, from the weights of `files` and, where these are found by iteration,
/// from `seed`; rank 0 writes them into `file` (model/pissa.h). Each linear is decomposed by one rank, on the host. Collective
/// over `comm`; throws Error, on all ranks, where a weight is not finite.
void write_initial_factors(const ModelSpec& spec, const io::ModelFiles& files, std::uint64_t seed, io::Storage& storage,
                           const std::filesystem::path& file, comm::Communicator& comm);
/// Fills factors with A0 and B0. Magnitudes are left to init_magnitude().
void load_initial_factors(const ModelSpec& spec, const io::TensorFile& initial, const ParamAccess& access);
/// Fills this rank's part of a magnitude with the norms of its linear's rows, which are in the unit's row scales.
void init_magnitude(const ParamSpec& magnitude, const at::Tensor& derived, const Shard& dst);

/// Fills what ModelSpec::in_adapter() names from DIR/adapter_model.safetensors, or else adapter_model.bin.
void load_adapter(const ModelSpec& spec, const std::filesystem::path& dir, const ParamAccess& access);

}  // namespace qft::model
