// Some layers of a model with random weights, to run each of their operations separately. Private to plan.
#pragma once

#include "qft/model/transformer.h"
#include "qft/optim/precision.h"
#include "qft/plan/measure.h"

#include <string>

namespace qft::plan {

/// The layers, their inputs and their buffers.
class SampleLayers {
 public:
  /// `spec`: the whole model's. Makes more layers than the caches can hold, so that weights come from memory as in a run.
  SampleLayers(const model::ModelSpec& spec, const optim::Precision& precision, c10::Device device,
               const MeasureOptions& options);

  const model::ModelSpec& spec() const { return spec_; }  ///< spec of these few layers
  int count() const { return static_cast<int>(layers_.size()); }

  // Each of these functions does its work once on every layer.
  void products_forward(int projection);
  void products_backward(int projection);
  void projections(bool lora);  ///< all projections, forward and backward
  void attention_forward();
  void attention_backward();
  void elementwise();  ///< the operations that Work::bytes counts, forward and backward
  void forward();
  void forward_backward();
  void head();  ///< once, not per layer

  /// Number of fused projections of a layer, over its sub-layers.
  int projections_of_a_layer() const;
  /// Operations of one projection, in one layer.
  double projection_operations(int projection, bool backward) const;
  /// "q_proj, k_proj, v_proj"
  std::string projection_name(int projection) const;

 private:
  struct Layer {
    model::UnitBuffers flat;
    model::LayerWeights weights, base;  ///< base: without LoRA
  };
  /// The input and output rows of a projection.
  struct Sides {
    at::Tensor in, out;
  };
  Sides sides(int projection) const;
  struct Place {
    std::size_t sublayer, linear;
    const model::ParamGroup* group;
  };
  Place place_of(int projection) const;
  const model::Projection& projection(const model::LayerWeights& w, int index) const;
  ops::AttentionOptions attention_options() const;  ///< for the first layer
  at::Tensor scratch_like(const char* name, const at::Tensor& t);
  at::Tensor random(at::IntArrayRef shape) const;
  void make_buffers();

  model::ModelSpec spec_;
  optim::Precision precision_;
  c10::Device device_;
  model::MicroInput input_;
  std::unique_ptr<model::Transformer> transformer_;
  std::vector<Layer> layers_;
  model::Arena arena_;
  model::HeadWeights head_;
  at::Tensor x_, y_, g_, qkv_, attention_, lse_, inner_, act_, rstd_, rows_, out_rows_, saved_, norm_weight_, head_values_,
      grad_head_values_;
};

}  // namespace qft::plan
