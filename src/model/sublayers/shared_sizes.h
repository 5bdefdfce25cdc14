// The parts of a layer that tensor ranks share: the heads of its attention or delta net, and the inner columns of its dense
// feed-forward.
// Experts are not shared: every rank has all of them. Private to model.
#pragma once

#include "qft/model/config.h"
#include "qft/model/share.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qft::model {

/// A linear's weight is cut only at multiples of these numbers of rows and columns.
struct Granule {
  std::int64_t rows = 1, columns = 1;
  std::string why = {};  ///< "self_attn.o_proj is kept as nf4"
  /// Tiles or groups of a quantised weight. A cut inside one is possible, but both parts then have smaller ones and more scales.
  std::int64_t tile_rows = 1, tile_columns = 1;
};

/// How ranks share a layer.
struct LayerSplit {
  Share share = {};
  std::string layer = {};                                     ///< for errors: "model.layers.3."
  std::map<std::string, Granule, std::less<>> granules = {};  ///< by the linear's path, if not 1 x 1
  Share context = {};                                         ///< this rank among those that share sequences

  Granule granule_of(std::string_view path) const;
};

/// Returns the outputs of q_proj for a head: with gates, the head's gate follows its q.
std::int64_t q_proj_dim(const ModelConfig& config);
Heads attention_heads(const ModelConfig& config, const LayerSplit& split);
Heads delta_heads(const ModelConfig& config, const LayerSplit& split);

/// The columns between a dense feed-forward's linears.
struct InnerColumns {
  std::string what;
  std::int64_t count = 0, granule = 1;
  std::int64_t tile = 1;  ///< cuts at its multiples divide no tile or group

  InnerColumns(const ModelConfig& config, const LayerSplit& split);
  bool fit(int ranks) const { return (count + granule - 1) / granule >= ranks; }
  /// Keeps tiles and groups whole, unless they are so few that the ranks' parts would differ much.
  Cut cut(Share share) const;
};

/// Heads, columns or rows that tensor ranks share, and the test whether a number of ranks can.
struct Shared {
  std::string what;  ///< for errors: "the 40 inner columns of model.layers.0.mlp"
  std::function<bool(int ranks)> fits;
  /// Returns the heads of the tensor rank that has fewest, which context ranks share; empty if these are no heads.
  std::function<std::int64_t(int ranks)> fewest_heads = {};
};
/// Returns everything that tensor ranks share of layer `index`.
std::vector<Shared> shared_of_layer(const ModelConfig& config, int index, const LayerSplit& split);

}  // namespace qft::model
