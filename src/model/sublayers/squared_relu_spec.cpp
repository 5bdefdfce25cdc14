#include "descriptions.h"

namespace qft::model {

SubLayerSpec describe_squared_relu(const ModelConfig& c) {
  const std::int64_t hidden = c.hidden_size, inner = c.intermediate_size;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::squared_relu;
  spec.params = {{.linears = {{"up_proj", "mlp.up_proj", inner, hidden, c.mlp_bias}}},
                 {.linears = {{"down_proj", "mlp.down_proj", hidden, inner, c.mlp_bias, Split::columns}}}};
  spec.saved = {{.columns = inner}};
  spec.scratch = {{"act", inner}, {"gact", inner, /*backward_only=*/true}};
  const auto h = static_cast<double>(hidden), i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 4 * i;         // norm and residual sum; ReLU and square in place
  spec.backward.values = 6 * h + (4 + 7) * i;  // norm and square recomputed; their gradients, including the residual's
  return spec;
}

}  // namespace qft::model
