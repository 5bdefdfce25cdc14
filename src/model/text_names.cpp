#include "text_names.h"

#include "qft/core/error.h"
#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <string>

namespace qft::model {

void detect_text_prefix(ModelConfig& config, const std::filesystem::path& dir) {
  constexpr std::string_view kNorm = "norm.weight";
  if (!io::holds_model_weights(dir)) return;
  try {
    const io::ModelFiles files = io::ModelFiles::open(dir);
    if (files.find(config.text_prefix + std::string(kNorm)) != nullptr) return;
    for (const std::string_view prefix : {kTextPrefixes[0], kTextPrefixes[1], std::string_view()})
      if (files.find(std::string(prefix) + std::string(kNorm)) != nullptr) config.text_prefix = prefix;
  } catch (const Error&) {
    return;  // the reader of the weights reports the problem
  }
}

}  // namespace qft::model
