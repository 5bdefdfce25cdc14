#include "qft/model/sublayer.h"

#include "qft/core/error.h"

#include "kinds.h"

namespace qft::model {

void LayerPass::keep(const OwnRows& own) {
  positions = own.of(positions);
  dropout.rows = {own.of(dropout.rows.sample_ids), own.of(dropout.rows.positions)};
}

void SubLayer::decode(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass,
                      std::span<const NewTokens> /*sequences*/, const SubLayerSaved& saved, const at::Tensor& out) const {
  forward(w, x, pass, saved, out);
}

void SubLayer::observe(std::int64_t /*layer*/, const SubLayerSaved& /*saved*/, const Routing& /*routing*/) const {}

std::unique_ptr<DecodeState> SubLayer::make_state(std::int64_t /*capacity*/, at::ScalarType /*dtype*/,
                                                  c10::Device /*device*/) const {
  return nullptr;
}

std::int64_t SubLayer::state_bytes_per_token(at::ScalarType /*dtype*/) const {
  return 0;
}

std::int64_t SubLayer::state_bytes(at::ScalarType /*dtype*/) const {
  return 0;
}

std::int64_t SubLayer::operation_scratch_bytes(const BatchShape& /*sizes*/, at::ScalarType /*dtype*/, bool /*backward*/,
                                               const KernelChoice& /*paths*/) const {
  return 0;
}

ops::NormWeight norm_weight(const ModelConfig& config) {
  switch (config.norms) {
    case NormKind::plain:
      return ops::NormWeight::plain;
    case NormKind::zero_centred:
      return ops::NormWeight::zero_centred;
    case NormKind::rounded_last:
      return ops::NormWeight::rounded_last;
  }
  fail("norm kind {} has no code", static_cast<int>(config.norms));
}

bool SubLayer::can_be_captured(c10::Device /*device*/, at::ScalarType /*dtype*/) const {
  return true;
}

std::unique_ptr<const SubLayer> make_sublayer(const ModelConfig& config, const SubLayerSpec& spec) {
  switch (spec.kind) {
    case SubLayerKind::attention:
      return make_attention(config, spec);
    case SubLayerKind::delta_net:
      return make_delta_net(config, spec);
    case SubLayerKind::swiglu:
      return make_swiglu(config, spec);
    case SubLayerKind::squared_relu:
      return make_squared_relu(config, spec);
    case SubLayerKind::experts:
      return make_experts(config, spec);
  }
  fail("sub-layer kind {} has no code", static_cast<int>(spec.kind));
}

}  // namespace qft::model
