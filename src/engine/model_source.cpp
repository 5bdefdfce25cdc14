#include "qft/engine/model_source.h"

#include "qft/comm/exchange.h"
#include "qft/config/bound_field.h"
#include "qft/config/dump.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/engine/reference.h"
#include "qft/io/file.h"
#include "qft/model/adapter_config.h"

#include <utility>

#include "adapter_choice.h"
#include <fmt/format.h>

namespace qft::engine {
namespace {

namespace fs = std::filesystem;

model::ModelConfig scaled(const model::ModelConfig& own, const config::RunConfig& config, Use use) {
  if (config.model.rope_scaling.empty()) return own;
  const bool by_length = use == Use::training || config.is_given("cutoff_len");
  const std::int64_t before = own.first_positions(), tokens = by_length ? config.data.cutoff_len : 2 * before;
  return tokens <= before ? own : own.scaled_to(tokens, config.model.rope_scaling);
}

/// Throws on all ranks if the keys of the stage differ: environment variables may set them, and mpirun exports variables to other
/// nodes only if it is told to. Collective.
void require_same_keys(const config::RunConfig& config, comm::Communicator& comm) {
  config::RunConfig copy = config;
  const auto fields = config::bound_fields(copy);
  nlohmann::ordered_json values;
  for (const config::StageKey& row : config.stage().keys)
    if (const config::BoundField* bound = config::find_field(fields, row.key); bound != nullptr)
      values[std::string(row.key)] = config::field_value(bound->field, bound->ref);
  const std::vector<std::string> all = comm::all_gather_strings(comm, values.dump());
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      fail_config(
          "the keys of stage {} differ between ranks: rank 0 has {}, rank {} has {}: write them into the run file, or export the "
          "environment variables to all ranks (mpirun -x NAME)",
          config.stage().name, all[0], rank, all[rank]);
}

/// Hashes the weights of a folder, independent of the folder's name.
void add_weights(Hasher& hasher, const fs::path& dir) {
  for (const fs::path& file : io::weight_files(dir)) {
    hasher.update(file.filename().string());
    hasher.update(io::sampled_hash(io::File::open_read(file)));
  }
}

void add_adapter(Hasher& hasher, const fs::path& dir) {
  hasher.update(hash_file(dir / model::kAdapterConfigFile));
  add_weights(hasher, dir);
}

std::string quantization_words(const config::ModelArgs& m) {
  if (!m.quantization_bit) return "none";
  std::string text = fmt::format("{} bits, {}", *m.quantization_bit, m.quantization_method);
  if (*m.quantization_bit == 4) text += fmt::format(", {}{}", m.quantization_type, m.double_quantization ? ", double" : "");
  return text;
}

}  // namespace

AdapterPaths adapter_paths(const config::RunConfig& config, Use use) {
  AdapterPaths adapters;
  adapters.merged = config.adapter_paths();
  if (adapters.merged.empty() || (use == Use::training && config.finetuning.create_new_adapter)) return adapters;
  adapters.live = std::move(adapters.merged.back());
  adapters.merged.pop_back();
  return adapters;
}

ModelSource ModelSource::read(const config::RunConfig& config, Use use) {
  const AdapterPaths paths = adapter_paths(config, use);
  const auto read_adapter = [&](const std::filesystem::path& dir) {
    AdapterSource adapter{dir, model::read_adapter_config(dir)};
    model::warn_about_other_base(dir, config.model.model_name_or_path, config.model_path());
    return adapter;
  };
  ModelSource source;
  source.use_ = use;
  source.dir_ = config.model_path();
  source.own_ = model::ModelConfig::load(source.dir_.string());
  source.scaled_ = scaled(source.own_, config, use);
  for (const std::filesystem::path& dir : paths.merged) source.merged_.push_back(read_adapter(dir));
  if (!paths.live.empty()) source.live_ = read_adapter(paths.live);
  if (use == Use::training && has_separate_reference(config, adapter_of(config, source), use))
    source.reference_ = std::make_shared<const ModelSource>(read(reference_config(config, use), Use::inference));
  return source;
}

ModelSource ModelSource::read(const config::RunConfig& config, Use use, comm::Communicator& comm) {
  require_same_keys(config, comm);
  ModelSource source;
  comm::agreed(comm, [&] { source = read(config, use); });
  return source;
}

std::filesystem::path ModelSource::last_adapter() const {
  if (live_) return live_->dir;
  return merged_.empty() ? std::filesystem::path() : merged_.back().dir;
}

bool ModelSource::has_weights() const {
  return files_ != nullptr || io::holds_model_weights(dir_);
}

io::ModelFiles& ModelSource::files() const {
  if (!files_) files_ = std::make_shared<io::ModelFiles>(io::ModelFiles::open(dir_));
  return *files_;
}

model::HeadFile head_file(const ModelSource& source, const model::ModelSpec& spec) {
  return model::find_head(spec, source.files(), source.last_adapter());
}

void require_shareable_prompts(const config::RunConfig& config, const model::RopeConfig& rope) {
  if (rope.scales_for(config.data.cutoff_len) && config.unshared_prompts_reason().empty())
    fail_config(
        "the model's rope scaling is dynamic: beyond {} tokens the angles of a pair's prompt depend on each answer's length, but "
        "cutoff_len is {} and prompts are computed once for both answers: set share_prompts: false",
        rope.dynamic->positions, config.data.cutoff_len);
}

std::string problem_of(const config::RunConfig& config, const model::ModelConfig& model, std::int64_t labels) {
  const auto& f = config.finetuning;
  return f.problem_type.empty() && !model.problem_type.empty() ? model.problem_type : f.effective_problem_type(labels);
}

ModelIdentity model_identity_of(const config::RunConfig& config, const ModelSource& source) {
  Hasher model, adapters;
  model.update(source.config().raw);
  add_weights(model, source.dir());
  for (const AdapterSource& adapter : source.merged()) add_adapter(adapters, adapter.dir);
  if (source.live()) add_adapter(adapters, source.live()->dir);
  const bool bare = source.merged().empty() && !source.live();
  return {model.hex(), bare ? "none" : adapters.hex(), quantization_words(config.model)};
}

}  // namespace qft::engine
