#include "descriptions.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace qft::model {

LinearSpec LinearSpec::of_rows(std::string name, std::string path, const Cut& rows, std::int64_t in, bool bias) {
  return {std::move(name), std::move(path), rows.count(), in, rows, Cut::none(in), bias, Split::rows};
}

LinearSpec LinearSpec::of_columns(std::string name, std::string path, std::int64_t out, const Cut& columns, bool bias) {
  return {std::move(name), std::move(path), out, columns.count(), Cut::none(out), columns, bias, Split::columns};
}

std::int64_t ParamGroup::out() const {
  std::int64_t rows = 0;
  for (const LinearSpec& linear : linears) rows += linear.out;
  return rows;
}

double visible_pairs(std::int64_t length, std::int64_t window) {
  const std::int64_t seen = window > 0 ? std::min(window, length) : length;  // tokens seen, except by the first tokens
  return static_cast<double>(seen) * (static_cast<double>(length) - 0.5 * static_cast<double>(seen - 1));
}

std::vector<const ParamGroup*> SubLayerSpec::linears() const {
  std::vector<const ParamGroup*> groups;
  for (const ParamGroup& group : params)
    if (!group.linears.empty()) groups.push_back(&group);
  return groups;
}

namespace {

/// Adds the names of a layer's linears that `names` does not contain yet: kinds may share names.
void add_modules(const Layer& layer, std::vector<std::string>& names) {
  for (const SubLayerSpec& sublayer : layer)
    for (const ParamGroup* group : sublayer.linears())
      for (const LinearSpec& linear : group->linears)
        if (std::ranges::find(names, linear.name) == names.end()) names.push_back(linear.name);
}

SubLayerSpec describe_feed_forward(const ModelConfig& config, const LayerSplit& split) {
  return config.feed_forward == FeedForward::swiglu ? describe_swiglu(config, split) : describe_squared_relu(config, split);
}

}  // namespace

std::string layer_prefix(const ModelConfig& config, int index) {
  return fmt::format("{}layers.{}.", config.text_prefix, index);
}

std::string path_of(const ExpertStack& stack) {
  return stack.path + "." + stack.name;
}

std::vector<std::string> module_names(const std::string& prefix, const ParamGroup& group, std::size_t linear) {
  const std::string& path = group.linears[linear].path;
  if (!group.is_stack()) return {prefix + path};
  std::vector<std::string> names;
  for (std::int64_t e = 0; e < group.stack.experts; ++e)
    names.push_back(fmt::format("{}{}.{}.{}", prefix, group.stack.path, e, path));
  return names;
}

std::vector<FileTensor> expert_tensors(const std::string& prefix, const ParamGroup& group,
                                       const std::vector<std::size_t>& linears, const std::string& suffix, std::int64_t rows,
                                       std::int64_t columns) {
  std::vector<FileTensor> tensors;
  for (std::int64_t expert = 0; expert < group.stack.experts; ++expert)
    for (const std::size_t i : linears) {
      const LinearSpec& linear = group.linears[i];
      tensors.push_back({fmt::format("{}{}.{}.{}{}", prefix, group.stack.path, expert, linear.path, suffix),
                         {rows > 0 ? rows : linear.out, columns}});
    }
  return tensors;
}

const std::vector<std::string>& lora_modules() {
  static const std::vector<std::string> names = [] {
    ModelConfig qwen, mixtral, next;
    next.delta_net.by_key_head = true;
    qwen.experts = {.count = 1, .per_token = 1, .shared_size = 1};
    mixtral.experts = {.count = 1, .per_token = 1, .gate = "w1", .up = "w3", .down = "w2"};
    std::vector<std::string> all;
    add_modules({describe_attention({}, 0), describe_swiglu({}), describe_squared_relu({}), describe_experts(qwen),
                 describe_experts(mixtral), describe_delta_net(qwen), describe_delta_net(next)},
                all);
    return all;
  }();
  return names;
}

std::vector<std::string> lora_modules(const ModelConfig& config) {
  std::vector<std::string> names;
  for (int i = 0; i < config.num_layers; ++i) add_modules(describe_layer(config, i), names);
  std::vector<std::string> ordered;
  std::ranges::copy_if(lora_modules(), std::back_inserter(ordered),
                       [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); });
  return ordered;
}

Layer describe_layer(const ModelConfig& config, int index, const LayerSplit& split) {
  const bool after = config.norm_after;
  Layer layer = {
      config.is_recurrent(index) ? describe_delta_net(config, split) : describe_attention(config, config.window(index), split),
      config.is_sparse(index) ? describe_experts(config) : describe_feed_forward(config, split)};
  layer.front().norm = after ? "post_attention_layernorm.weight" : "input_layernorm.weight";
  layer.back().norm = after ? "post_feedforward_layernorm.weight" : "post_attention_layernorm.weight";
  if (!after) return layer;
  for (SubLayerSpec& sublayer : layer) {
    sublayer.norm_after = true;
    sublayer.saved.push_back({.columns = config.hidden_size, .of_norm = true});
  }
  return layer;
}

}  // namespace qft::model
