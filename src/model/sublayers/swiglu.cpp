// Feed-forward with a gated activation (Shazeer 2020, SwiGLU). `rows` holds the gate's columns, then the columns it multiplies.
#include "qft/ops/swiglu.h"

#include "feed_forward.h"
#include "kinds.h"

namespace qft::model {
namespace {

struct SwiGlu {
  static void forward(const at::Tensor& rows, const at::Tensor& act) { ops::swiglu_forward(rows, act); }
  static void backward(const at::Tensor& rows, const at::Tensor& gact) { ops::swiglu_backward(rows, gact, rows, {}); }
};

}  // namespace

std::unique_ptr<const SubLayer> make_swiglu(const ModelConfig& /*config*/, const SubLayerSpec& spec) {
  return std::make_unique<DenseFeedForward<SwiGlu>>(spec);
}

}  // namespace qft::model
