// The places at which tensor ranks may cut a model's matrices, and the numbers of ranks that can share them. Private to model.
#pragma once

#include "qft/model/spec.h"

#include "sublayers/shared_sizes.h"

namespace qft::model {

/// Returns how the ranks share layer `index`. Uses the spec's configuration, adapter and fine-tuning only. A quantised weight is
/// cut where its codes and scales can be, and inputs that OFT rotates are cut between blocks.
LayerSplit split_of(const ModelSpec& spec, int index, Share share, const WeightStorage& weight_storage);

/// Returns the rows of the embedding and of lm_head.
Cut vocabulary_rows(const ModelConfig& config, Share share);

}  // namespace qft::model
