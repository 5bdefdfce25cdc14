#include "descriptions.h"

namespace qft::model {

SubLayerSpec describe_swiglu(const ModelConfig& c) {
  const std::int64_t hidden = c.hidden_size, inner = c.intermediate_size;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::swiglu;
  spec.params = {{.linears = {{"gate_proj", "mlp.gate_proj", inner, hidden, c.mlp_bias},
                              {"up_proj", "mlp.up_proj", inner, hidden, c.mlp_bias}}},
                 {.linears = {{"down_proj", "mlp.down_proj", hidden, inner, c.mlp_bias, Split::columns}}}};
  spec.saved = {{.columns = 2 * inner}};
  spec.scratch = {{"act", inner}, {"gact", inner, /*backward_only=*/true}};
  const auto h = static_cast<double>(hidden), i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 3 * i;         // norm and residual sum; gate, up and their product
  spec.backward.values = 6 * h + (3 + 5) * i;  // norm and product recomputed; their gradients, including the residual's
  return spec;
}

}  // namespace qft::model
