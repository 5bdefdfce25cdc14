#include "merge.h"

#include "qft/core/error.h"

namespace qft::model {

std::unique_ptr<WeightChange> change_of(const AdapterConfig& config, const io::TensorFile& file, const ChangedWeight& weight) {
  QFT_ASSERT(config.enabled(), "'{}' does not belong to an adapter", file.path().string());
  if (config.oft.enabled()) return oft_change(config.oft, file, weight);
  return lora_change(file, weight);
}

}  // namespace qft::model
