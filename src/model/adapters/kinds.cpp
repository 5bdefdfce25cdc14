#include "kinds.h"

#include <algorithm>

namespace qft::model {

const std::vector<AdapterKind>& adapter_kinds() {
  static const std::vector<AdapterKind> kinds = {kLora, kOft};
  return kinds;
}

const AdapterKind* kind_of(const AdapterConfig& config) {
  const auto& kinds = adapter_kinds();
  const auto found = std::ranges::find_if(kinds, [&](const AdapterKind& kind) { return kind.enabled(config); });
  return found == kinds.end() ? nullptr : &*found;
}

}  // namespace qft::model
