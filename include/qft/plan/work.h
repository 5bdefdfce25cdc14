// Counts the work of a step's actions from the shapes: operations of matrix products, and bytes that everything else moves.
#pragma once

#include "qft/core/batch_shape.h"
#include "qft/model/spec.h"
#include "qft/parallel/objective.h"
#include "qft/plan/machine.h"

#include <cstdint>
#include <vector>

#include <c10/core/ScalarType.h>

namespace qft::plan {

/// The shape of a micro-batch, with the lengths of its sequences.
struct MicroShape : BatchShape {
  /// Appends a sequence.
  void add_sequence(std::int64_t length, std::int64_t sequence_labels);
  /// Makes the last sequence share `rows` rows with the one before.
  void share(std::int64_t rows);
  /// Returns the pairs of a token and a visible token within the window; 0: no window.
  double pairs(std::int64_t window = 0) const;
  /// Returns the first sequence of each pair, with half of the labels.
  MicroShape half() const;

 private:
  std::vector<std::int64_t> lengths_;
  double all_pairs_ = 0;
};

/// Amounts of the kinds of work, which run at different rates.
struct Work {
  double matmul = 0;     ///< operations of the model's own products
  double narrow = 0;     ///< operations of LoRA's products
  double attention = 0;  ///< operations of attention
  double bytes = 0;      ///< bytes that element-wise operations read and write

  Work& operator+=(const Work& other);
  friend Work operator+(Work a, const Work& b) { return a += b; }
};

/// Returns the seconds that the work takes on a machine. Different kinds of work do not overlap on one device.
double seconds(const Work& work, const Machine& machine, at::ScalarType type);

/// Returns the work of one block and micro-batch ("forward", "backward" of the action list). A row-local objective computes the
/// head's gradient in the head's forward; an objective of whole sequences in its backward, with the logits again. `recompute`:
/// backward first repeats the layer's forward. `input_grad`: gradients flow to the block below.
Work forward_work(const model::ModelSpec& spec, int block, const MicroShape& micro, at::ScalarType type,
                  parallel::ObjectiveKind objective = parallel::ObjectiveKind::row_local);
Work backward_work(const model::ModelSpec& spec, int block, const MicroShape& micro, at::ScalarType type, bool recompute,
                   bool input_grad, parallel::ObjectiveKind objective = parallel::ObjectiveKind::row_local);

}  // namespace qft::plan
