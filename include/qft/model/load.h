// Loads weights from files and writes them, by logical name.
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

/// Returns the part of a parameter's boxes that this rank holds: all, some, or none (no elements).
using ParamAccess = std::function<Shard(int unit, const ParamSpec& param)>;

/// Splits the values [numel] of a whole parameter into the tensors that files have for it, in order. Returns views, or copies if
/// files order the elements differently.
std::vector<std::pair<FileTensor, at::Tensor>> as_in_files(const ParamSpec& param, const at::Tensor& values);

/// Returns the formats in which files hold the linears that config.json declares as quantised; the linears are kept in these
/// formats. `files` must outlive the result; nullptr: assumes config.json's formats, for plans.
WeightStorage weight_storage_of(const StoredQuantization& stored, const io::ModelFiles* files);

/// Throws as load_base_weights() does for anything visible in the files' headers: a missing, unknown or mismatched tensor. Reads
/// no data.
void require_base_weights(const ModelSpec& spec, const io::ModelFiles& files);
/// Checks an adapter's files in the same way.
void require_adapter(const ModelSpec& spec, const std::filesystem::path& dir);

/// Fills every base parameter (Role::base) that is not quantised from a model directory. Returns the bytes read. Throws Error,
/// naming the tensor, both shapes and the file; also if the files have tensors that the architecture does not have.
std::int64_t load_base_weights(const ModelSpec& spec, const io::ModelFiles& files, const ParamAccess& access);

/// Returns the part of a unit's quantised weights, in bytes, that this rank keeps.
using PackedAccess = std::function<Shard(int unit)>;

/// Fills every quantised parameter: one rank reads each tensor whole, quantises it unless the files already do, and sends the
/// bytes to all, which keep their boxes: the codes of a box are those of the whole tensor. Returns the bytes that this rank read.
/// Collective over `comm`. Throws Error on all ranks if a weight is not finite, or if the auxiliary tensors of a quantised weight
/// are damaged.
std::int64_t load_quantized_weights(const ModelSpec& spec, const io::ModelFiles& files, const PackedAccess& access,
                                    comm::Communicator& comm);

/// The file that holds a value head or classifier head (Role::value_head).
struct HeadFile {
  std::filesystem::path path;  ///< empty: there is no such file
  std::string prefix = {};     ///< prefix of the head's tensor names
};
/// Finds the head. A reward model's head lies beside the adapter or, without an adapter (empty path), beside the model. A
/// classifier's head is among the adapter's tensors if the adapter has one, else among the model's.
HeadFile find_head(const ModelSpec& spec, const io::ModelFiles& files, const std::filesystem::path& adapter);
/// Throws Error if the file's header does not match. Reads no data.
void require_value_head(const ModelSpec& spec, const HeadFile& file);
/// Fills the head from the file.
void load_value_head(const ModelSpec& spec, const HeadFile& file, const ParamAccess& access);
/// Initialises the head. Reward model: like torch's linear, weight and bias uniform in +-1/sqrt(in_features). Classifier: like
/// transformers, normal with deviation initializer_range. Random numbers are counter-based as in init_adapter().
void init_value_head(const ModelSpec& spec, std::uint64_t seed, const ParamAccess& access);

/// Initialises an adapter like PEFT: A uniform in +-1/sqrt(in_features) (kaiming_uniform with a = sqrt 5), B zero. Random numbers
/// are counter-based from (seed, name, index), so any number of ranks with any slices gets the same values. init_magnitude()
/// fills magnitudes.
void init_adapter(const ModelSpec& spec, std::uint64_t seed, const ParamAccess& access);
/// Computes PiSSA's initial factors A0 and B0 for each linear that LoRA wraps, from the weights in `files` and, for the iterative
/// decomposition, from `seed`; rank 0 writes them into `file` (model/pissa.h). Each linear is decomposed by one rank, on the
/// host. Collective over `comm`. Throws Error on all ranks if a weight is not finite.
void write_initial_factors(const ModelSpec& spec, const io::ModelFiles& files, std::uint64_t seed, io::Storage& storage,
                           const std::filesystem::path& file, comm::Communicator& comm);
/// Fills LoRA's factors with A0 and B0. init_magnitude() fills magnitudes.
void load_initial_factors(const ModelSpec& spec, const io::TensorFile& initial, const ParamAccess& access);
/// Fills this rank's part of a magnitude with the norms of its linear's rows, taken from the unit's derived values.
void init_magnitude(const ParamSpec& magnitude, const at::Tensor& derived, const Shard& dst);

/// Fills the parameters that ModelSpec::in_adapter() names from DIR/adapter_model.safetensors or, if that does not exist,
/// adapter_model.bin.
void load_adapter(const ModelSpec& spec, const std::filesystem::path& dir, const ParamAccess& access);

}  // namespace qft::model
