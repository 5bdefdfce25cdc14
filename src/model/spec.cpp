#include "qft/model/spec.h"

#include <cmath>
#include <sstream>

#include "qft/core/error.h"

namespace qft::model {
namespace {

using Shape = std::vector<std::int64_t>;

/// One row a tensor kind. `starts_group`: begins on an aligned offset; rows that do not continue the one before.
struct TensorRow {
  TensorKind kind;
  UnitSpec::Kind unit;
  const char* suffix;  ///< after "model.layers.N." for layers, the full name elsewhere
  bool starts_group;
  bool decays;
  bool (*present)(const ModelConfig&);
  Shape (*shape)(const ModelConfig&);
};

bool always(const ModelConfig&) { return true; }
bool has_qkv_bias(const ModelConfig& c) { return c.qkv_bias; }
bool has_o_bias(const ModelConfig& c) { return c.o_bias; }
bool has_mlp_bias(const ModelConfig& c) { return c.mlp_bias; }
bool has_qk_norm(const ModelConfig& c) { return c.qk_norm; }
bool has_own_head(const ModelConfig& c) { return !c.tie_word_embeddings; }

Shape vocab_by_hidden(const ModelConfig& c) { return {c.vocab_size, c.hidden_size}; }
Shape hidden(const ModelConfig& c) { return {c.hidden_size}; }
Shape head(const ModelConfig& c) { return {c.head_dim}; }
template <Module M>
Shape weight(const ModelConfig& c) {
  const auto [out, in] = module_shape(c, M);
  return {out, in};
}
template <Module M>
Shape bias(const ModelConfig& c) {
  return {module_shape(c, M)[0]};
}

constexpr auto kEmb = UnitSpec::Kind::embedding;
constexpr auto kLay = UnitSpec::Kind::layer;
constexpr auto kHead = UnitSpec::Kind::head;
using K = TensorKind;
using M = Module;

const TensorRow kTensors[] = {
    {K::embed_tokens, kEmb, "model.embed_tokens.weight", true, true, always, vocab_by_hidden},
    {K::input_norm, kLay, "input_layernorm.weight", true, false, always, hidden},
    {K::q_weight, kLay, "self_attn.q_proj.weight", true, true, always, weight<M::q_proj>},
    {K::k_weight, kLay, "self_attn.k_proj.weight", false, true, always, weight<M::k_proj>},
    {K::v_weight, kLay, "self_attn.v_proj.weight", false, true, always, weight<M::v_proj>},
    {K::q_bias, kLay, "self_attn.q_proj.bias", true, false, has_qkv_bias, bias<M::q_proj>},
    {K::k_bias, kLay, "self_attn.k_proj.bias", false, false, has_qkv_bias, bias<M::k_proj>},
    {K::v_bias, kLay, "self_attn.v_proj.bias", false, false, has_qkv_bias, bias<M::v_proj>},
    {K::q_norm, kLay, "self_attn.q_norm.weight", true, false, has_qk_norm, head},
    {K::k_norm, kLay, "self_attn.k_norm.weight", true, false, has_qk_norm, head},
    {K::o_weight, kLay, "self_attn.o_proj.weight", true, true, always, weight<M::o_proj>},
    {K::o_bias, kLay, "self_attn.o_proj.bias", true, false, has_o_bias, bias<M::o_proj>},
    {K::post_norm, kLay, "post_attention_layernorm.weight", true, false, always, hidden},
    {K::gate_weight, kLay, "mlp.gate_proj.weight", true, true, always, weight<M::gate_proj>},
    {K::up_weight, kLay, "mlp.up_proj.weight", false, true, always, weight<M::up_proj>},
    {K::gate_bias, kLay, "mlp.gate_proj.bias", true, false, has_mlp_bias, bias<M::gate_proj>},
    {K::up_bias, kLay, "mlp.up_proj.bias", false, false, has_mlp_bias, bias<M::up_proj>},
    {K::down_weight, kLay, "mlp.down_proj.weight", true, true, always, weight<M::down_proj>},
    {K::down_bias, kLay, "mlp.down_proj.bias", true, false, has_mlp_bias, bias<M::down_proj>},
    {K::final_norm, kHead, "model.norm.weight", true, false, always, hidden},
    {K::lm_head, kHead, "lm_head.weight", true, true, has_own_head, vocab_by_hidden},
};

struct ModuleRow {
  const char* name;
  const char* path;  ///< inside a layer
};
constexpr ModuleRow kModuleTable[kModules] = {
    {"q_proj", "self_attn.q_proj"}, {"k_proj", "self_attn.k_proj"}, {"v_proj", "self_attn.v_proj"},
    {"o_proj", "self_attn.o_proj"}, {"gate_proj", "mlp.gate_proj"}, {"up_proj", "mlp.up_proj"},
    {"down_proj", "mlp.down_proj"},
};

/// Modules whose projections are fused: their LoRA factors lie A A A B B B.
const std::vector<std::vector<Module>> kFusedGroups = {
    {M::q_proj, M::k_proj, M::v_proj}, {M::o_proj}, {M::gate_proj, M::up_proj}, {M::down_proj}};

std::int64_t align(std::int64_t n) { return (n + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment; }

std::int64_t product(const Shape& shape) {
  std::int64_t n = 1;
  for (const auto d : shape) n *= d;
  return n;
}

/// Gives `param` its place in the unit and appends it.
void place(UnitSpec& unit, ParamSpec param, bool starts_group) {
  std::int64_t& end = param.trainable ? unit.trainable_numel : unit.frozen_numel;
  if (starts_group) end = align(end);
  param.numel = product(param.shape);
  param.offset = end;
  end += param.numel;
  unit.params.push_back(std::move(param));
}

void place_lora(UnitSpec& unit, const ModelConfig& config, const LoraConfig& lora, const std::string& prefix) {
  for (const auto& group : kFusedGroups) {
    for (const Role role : {Role::lora_a, Role::lora_b}) {
      bool first = true;
      for (const Module module : group) {
        if (!lora.targets_module(module)) continue;
        const auto [out, in] = module_shape(config, module);
        ParamSpec p;
        p.role = role;
        p.module = module;
        p.name = "base_model.model." + prefix + kModuleTable[static_cast<std::size_t>(module)].path +
                 (role == Role::lora_a ? ".lora_A.weight" : ".lora_B.weight");
        p.shape = role == Role::lora_a ? Shape{lora.rank, in} : Shape{out, lora.rank};
        p.trainable = true;
        p.weight_decay = true;
        place(unit, std::move(p), first);
        first = false;
      }
    }
  }
}

UnitSpec build_unit(const ModelConfig& config, Finetuning finetuning, const LoraConfig& lora, UnitSpec::Kind kind,
                    int layer) {
  UnitSpec unit;
  unit.kind = kind;
  unit.layer = layer;
  unit.name = kind == kEmb ? "embedding" : kind == kHead ? "head" : fmt::format("layer {}", layer);
  const std::string prefix = kind == kLay ? fmt::format("model.layers.{}.", layer) : "";
  for (const TensorRow& row : kTensors) {
    if (row.unit != kind || !row.present(config)) continue;
    ParamSpec p;
    p.kind = row.kind;
    p.name = prefix + row.suffix;
    p.shape = row.shape(config);
    p.trainable = finetuning == Finetuning::full;
    p.weight_decay = row.decays;
    place(unit, std::move(p), row.starts_group);
  }
  if (kind == kLay && finetuning == Finetuning::lora) place_lora(unit, config, lora, prefix);
  unit.frozen_numel = align(unit.frozen_numel);
  unit.trainable_numel = align(unit.trainable_numel);
  return unit;
}

}  // namespace

const char* module_name(Module module) { return kModuleTable[static_cast<std::size_t>(module)].name; }

std::array<std::int64_t, 2> module_shape(const ModelConfig& c, Module module) {
  switch (module) {
    case Module::q_proj: return {c.q_size(), c.hidden_size};
    case Module::k_proj:
    case Module::v_proj: return {c.kv_size(), c.hidden_size};
    case Module::o_proj: return {c.hidden_size, c.q_size()};
    case Module::gate_proj:
    case Module::up_proj: return {c.intermediate_size, c.hidden_size};
    case Module::down_proj: return {c.hidden_size, c.intermediate_size};
    case Module::count: break;
  }
  fail("module index {} is out of range", static_cast<int>(module));
}

double LoraConfig::scaling() const {
  return rslora ? alpha / std::sqrt(static_cast<double>(rank)) : alpha / static_cast<double>(rank);
}

std::vector<std::string> LoraConfig::target_names() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kModules; ++i)
    if (targets[i]) names.emplace_back(kModuleTable[i].name);
  return names;
}

void LoraConfig::set_targets(const std::string& list) {
  targets.fill(false);
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) {
    word.erase(0, word.find_first_not_of(" \t"));
    word.erase(word.find_last_not_of(" \t") + 1);
    if (word.empty()) continue;
    if (word == "all") {
      targets.fill(true);
      continue;
    }
    bool known = false;
    for (std::size_t i = 0; i < kModules; ++i)
      if (word == kModuleTable[i].name) known = targets[i] = true;
    if (!known)
      fail_config("lora_target '{}' is no linear module of this model: use all, or of q_proj, k_proj, v_proj, o_proj, "
                  "gate_proj, up_proj, down_proj", word);
  }
  if (target_names().empty()) fail_config("lora_target is empty: use all, or a list of modules");
}

std::vector<int> ModelSpec::units_of_block(int block) const {
  if (block == head_unit() && config.tie_word_embeddings) return {block, 0};
  return {block};
}

std::int64_t ModelSpec::num_params(bool trainable_only) const {
  std::int64_t n = 0;
  for (const auto& unit : units)
    for (const auto& p : unit.params)
      if (p.trainable || !trainable_only) n += p.numel;
  return n;
}

ModelSpec ModelSpec::build(const ModelConfig& config, Finetuning finetuning, const LoraConfig& lora) {
  QFT_ASSERT((finetuning == Finetuning::lora) == lora.enabled(), "LoRA rank {} does not fit the method", lora.rank);
  ModelSpec spec;
  spec.config = config;
  spec.lora = lora;
  spec.finetuning = finetuning;
  spec.units.push_back(build_unit(config, finetuning, lora, kEmb, -1));
  for (int i = 0; i < config.num_layers; ++i) spec.units.push_back(build_unit(config, finetuning, lora, kLay, i));
  spec.units.push_back(build_unit(config, finetuning, lora, kHead, -1));
  return spec;
}

}  // namespace qft::model
