#include "code.h"

namespace qft::model {

const AdapterCode* code_of(const AdapterConfig& config) {
  for (const AdapterCode* code : {&kLoraCode, &kOftCode})
    if (code->enabled(config)) return code;
  return nullptr;
}

}  // namespace qft::model
