// Feed-forward with two matrices and the squared ReLU between them (So et al. 2021).
#include "qft/ops/squared_relu.h"

#include "feed_forward.h"
#include "kinds.h"

namespace qft::model {
namespace {

struct SquaredRelu {
  static void forward(const at::Tensor& rows, const at::Tensor& act) { ops::squared_relu_forward(rows, act); }
  static void backward(const at::Tensor& rows, const at::Tensor& gact) { ops::squared_relu_backward(rows, gact, rows); }
};

}  // namespace

std::unique_ptr<const SubLayer> make_squared_relu(const ModelConfig& /*config*/, const SubLayerSpec& spec) {
  return std::make_unique<DenseFeedForward<SquaredRelu>>(spec);
}

}  // namespace qft::model
