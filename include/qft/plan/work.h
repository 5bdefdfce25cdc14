// The work of a step's actions, from the shapes: operations of the matrix products, and bytes that everything else moves.
#pragma once

#include "qft/model/spec.h"
#include "qft/parallel/objective.h"
#include "qft/plan/machine.h"

#include <cstdint>
#include <vector>

#include <c10/core/ScalarType.h>

namespace qft::plan {

/// A micro-batch.
struct MicroShape {
  std::int64_t tokens = 0;  ///< that are computed: rows
  std::int64_t labels = 0;
  std::int64_t sequences = 0;
  std::int64_t longest = 0;   ///< tokens of a sequence
  std::int64_t padded = 0;    ///< tokens if each sequence were as long as the longest
  std::int64_t expanded = 0;  ///< tokens of the sequences, where these share rows; 0: they share none

  void add_sequence(std::int64_t length, std::int64_t sequence_labels);
  /// The last sequence has so many rows in common with the one before it.
  void share(std::int64_t rows);
  /// Pairs of a token and one that it sees within the window; 0: no window.
  double pairs(std::int64_t window = 0) const;
  /// The first sequence of each two, with half of the labels.
  MicroShape half() const;

 private:
  std::vector<std::int64_t> lengths_;
  double all_pairs_ = 0;
};

struct Work {
  double matmul = 0;     ///< operations of the model's own products
  double narrow = 0;     ///< of LoRA's
  double attention = 0;  ///< of attention
  double bytes = 0;      ///< that element-wise operations read and write

  Work& operator+=(const Work& other);
  friend Work operator+(Work a, const Work& b) { return a += b; }
};

/// Seconds on a machine; different kinds of work do not overlap on one device.
double seconds(const Work& work, const Machine& machine, at::ScalarType type);

/// The work of one block and micro-batch ("forward", "backward" of the action list). For a row-local objective the head's
/// gradient is computed in its forward; for one of whole sequences in its backward, with the logits again.
/// `recompute`: backward first runs the layer forward again. `input_grad`: gradients flow on to the block below.
Work forward_work(const model::ModelSpec& spec, int block, const MicroShape& micro, at::ScalarType type,
                  parallel::ObjectiveKind objective = parallel::ObjectiveKind::row_local);
Work backward_work(const model::ModelSpec& spec, int block, const MicroShape& micro, at::ScalarType type, bool recompute,
                   bool input_grad, parallel::ObjectiveKind objective = parallel::ObjectiveKind::row_local);

}  // namespace qft::plan
