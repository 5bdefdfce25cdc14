#include "qft/model/expand.h"

#include "qft/core/error.h"
#include "qft/io/model_files.h"
#include "qft/model/config.h"
#include "qft/model/spec.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "rewritten_model.h"
#include "tensor_check.h"
#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

using Json = nlohmann::ordered_json;

/// The source of a tensor in the deeper model.
struct Origin {
  std::string name;
  io::TensorLocation at;
  bool zero = false;
};

void require_alike(const ModelConfig& c, std::int64_t added) {
  if (added < 1 || c.num_layers % added != 0)
    fail_config("{} layers cannot be inserted evenly between the model's {}: use a divisor of the model's layers", added,
                c.num_layers);
  const bool mixed = std::ranges::adjacent_find(c.windows, std::ranges::not_equal_to()) != c.windows.end();
  if (mixed || c.experts.count > 0 || !c.recurrent.empty())
    fail_config("model_type {}: only models with identical dense layers can be expanded", c.model_type);
}

/// Returns the layer that a tensor belongs to; -1 if none.
std::int64_t layer_of(const std::string& name, const std::string& prefix, std::int64_t layers) {
  if (!name.starts_with(prefix)) return -1;
  std::int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
  return error == std::errc() && *end == '.' && layer >= 0 && layer < layers ? layer : -1;
}

/// Returns the sources of all tensors in order. `group`: layers before each inserted layer.
std::vector<Origin> origins_of(const io::ModelFiles& files, const ModelConfig& config, std::int64_t group) {
  const std::string prefix = config.text_prefix + "layers.";
  std::vector<Origin> all;
  for (const std::string& name : files.names()) {
    const std::int64_t layer = layer_of(name, prefix, config.num_layers);
    if (layer < 0) {
      all.push_back({name, files.at(name)});
      continue;
    }
    const std::string rest = name.substr(name.find('.', prefix.size()));
    const std::int64_t number = layer + layer / group;
    all.push_back({fmt::format("{}{}{}", prefix, number, rest), files.at(name)});
    if ((layer + 1) % group != 0) continue;
    const bool output = rest.find(".o_proj.") != std::string::npos || rest.find(".down_proj.") != std::string::npos;
    all.push_back({fmt::format("{}{}{}", prefix, number + 1, rest), files.at(name), output});
  }
  return all;
}

/// Updates layer counts in config.json's object.
void deepen(Json& object, const ModelConfig& model, std::int64_t added) {
  if (!object.contains("num_hidden_layers")) return;
  const std::int64_t group = model.num_layers / added;
  object["num_hidden_layers"] = model.num_layers + added;
  // Otherwise the added layers would have a window.
  const bool full = std::ranges::all_of(model.windows, [](std::int64_t window) { return window == 0; });
  if (full && object.value("use_sliding_window", Json()) == true) object["max_window_layers"] = model.num_layers + added;
  if (const auto types = object.find("layer_types"); types != object.end() && types->is_array()) {
    Json deeper = Json::array();
    for (std::size_t i = 0; i < types->size(); ++i) {
      deeper.push_back((*types)[i]);
      if ((static_cast<std::int64_t>(i) + 1) % group == 0) deeper.push_back((*types)[i]);
    }
    *types = deeper;
  }
}

}  // namespace

std::int64_t expand_model(io::Storage& storage, const ExpandRequest& request) {
  io::require_absent_or_empty(request.target, "the expanded model's directory");
  const ModelConfig config = ModelConfig::load(request.base);
  if (config.stored) fail_config("'{}' is quantised in its files: expand the 16-bit model", request.base.string());
  require_alike(config, request.layers);
  const io::ModelFiles files = io::ModelFiles::open(request.base);
  reject_unexpected_tensors(ModelSpec::build(config, Finetuning::full, {}), files);
  const std::int64_t group = config.num_layers / request.layers;
  const std::vector<Origin> origins = origins_of(files, config, group);
  std::vector<io::TensorSpec> tensors;
  for (const Origin& origin : origins) tensors.push_back({origin.name, origin.at.entry->dtype, origin.at.entry->shape});

  io::CommitDir commit(storage, request.target);
  io::ModelWriter writer(storage, commit.temp(), std::move(tensors), request.max_shard_bytes);
  for (const Origin& origin : origins) copy_tensor(origin.at, writer, origin.zero);
  writer.finish();
  copy_configs(storage, request.base, commit.temp(), config, [&](Json& object) { deepen(object, config, request.layers); });
  commit.commit();
  return static_cast<std::int64_t>(origins.size());
}

}  // namespace qft::model
