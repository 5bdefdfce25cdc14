#include "kinds.h"

namespace qft::model {

std::int64_t ParamGroup::out() const {
  std::int64_t rows = 0;
  for (const LinearSpec& linear : linears) rows += linear.out;
  return rows;
}

std::vector<const ParamGroup*> SubLayerSpec::linears() const {
  std::vector<const ParamGroup*> groups;
  for (const ParamGroup& group : params)
    if (!group.linears.empty()) groups.push_back(&group);
  return groups;
}

void SubLayer::decode(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, std::span<const NewTokens> /*sequences*/,
                      const SubLayerSaved& saved, const at::Tensor& out) const {
  forward(w, x, pass, saved, out);
}

std::unique_ptr<DecodeState> SubLayer::make_state(std::int64_t /*capacity*/, at::ScalarType /*dtype*/, c10::Device /*device*/) const {
  return nullptr;
}

std::int64_t SubLayer::state_bytes_per_token(at::ScalarType /*dtype*/) const { return 0; }

std::int64_t SubLayer::operation_scratch_bytes(std::int64_t /*tokens*/, std::int64_t /*sequences*/, at::ScalarType /*dtype*/,
                                               bool /*backward*/, bool /*on_cpu*/) const {
  return 0;
}

bool SubLayer::can_be_captured(c10::Device /*device*/, at::ScalarType /*dtype*/) const { return true; }

const std::vector<std::string>& lora_modules() {
  static const std::vector<std::string> names = [] {
    ModelConfig any;
    any.num_heads = any.num_kv_heads = any.head_dim = any.hidden_size = any.intermediate_size = 1;
    std::vector<std::string> all;
    for (const auto& sublayer : {make_attention(any), make_swiglu(any)})
      for (const ParamGroup* group : sublayer->spec().linears())
        for (const LinearSpec& linear : group->linears) all.push_back(linear.name);
    return all;
  }();
  return names;
}

std::vector<std::shared_ptr<const SubLayer>> sublayers_of(const ModelConfig& config, int /*index*/) {
  return {make_attention(config), make_swiglu(config)};
}

}  // namespace qft::model
