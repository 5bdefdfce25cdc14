// What an adapter makes of base weights: the same for an export as for weights that are loaded. Needs no LibTorch. Private to
// model.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <map>
#include <memory>
#include <string>

#include "adapters/merge.h"

namespace qft::model {

/// An open adapter whose tensors are those that its configuration asks for.
class Adapter {
 public:
  /// `spec`: of its model with it, which must outlive it. Throws Error where the files are of another one.
  Adapter(const ModelSpec& spec, std::unique_ptr<io::TensorFile> file);

  /// nullptr where it does not wrap the parameter.
  std::unique_ptr<const WeightChange> find(const ParamSpec& base) const;
  bool has(const ParamSpec& base) const { return of_.contains(base.name); }
  /// A base tensor that it has whole, in place of the model's; nullptr: it does not have it.
  const io::TensorLocation* saved(const ParamSpec& base) const;
  bool changes(const ParamSpec& base) const { return has(base) || saved(base) != nullptr; }

 private:
  const AdapterConfig& config_;
  std::unique_ptr<io::TensorFile> file_;
  std::map<std::string, ChangedWeight> of_;  ///< by the name of the base weight
  std::map<std::string, io::TensorLocation> saved_;
};

}  // namespace qft::model
