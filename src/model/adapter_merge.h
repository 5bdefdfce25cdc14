// Applies an adapter to base weights, both for exports and for weights that are loaded. Needs no LibTorch. Private to model.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <map>
#include <memory>
#include <string>

#include "adapters/merge.h"

namespace qft::model {

/// An open adapter file with exactly the tensors that its configuration requires.
class Adapter {
 public:
  /// `spec`: the model's with this adapter; must outlive the object. Throws Error if the file does not match.
  Adapter(const ModelSpec& spec, std::unique_ptr<io::TensorFile> file);

  /// Returns the adapter's change of a parameter; nullptr if the adapter does not wrap it.
  std::unique_ptr<const WeightChange> find(const ParamSpec& base) const;
  bool has(const ParamSpec& base) const { return changed_.contains(base.name); }
  /// Returns the adapter's full tensor that replaces the model's base tensor; nullptr if there is none.
  const io::TensorLocation* replacement(const ParamSpec& base) const;
  bool changes(const ParamSpec& base) const { return has(base) || replacement(base) != nullptr; }

 private:
  const AdapterConfig& config_;
  std::unique_ptr<io::TensorFile> file_;
  std::map<std::string, ChangedWeight> changed_;  ///< by the base weight's name
  std::map<std::string, io::TensorLocation> replacements_;
};

}  // namespace qft::model
