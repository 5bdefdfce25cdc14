#include "descriptions.h"

#include <algorithm>

namespace qft::model {

std::int64_t ParamGroup::out() const {
  std::int64_t rows = 0;
  for (const LinearSpec& linear : linears) rows += linear.out;
  return rows;
}

double visible_pairs(std::int64_t length, std::int64_t window) {
  const std::int64_t seen = window > 0 ? std::min(window, length) : length;  // by all but the first tokens
  return static_cast<double>(seen) * (static_cast<double>(length) - 0.5 * static_cast<double>(seen - 1));
}

std::vector<const ParamGroup*> SubLayerSpec::linears() const {
  std::vector<const ParamGroup*> groups;
  for (const ParamGroup& group : params)
    if (!group.linears.empty()) groups.push_back(&group);
  return groups;
}

const std::vector<std::string>& lora_modules() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const SubLayerSpec& sublayer : {describe_attention({}, 0), describe_swiglu({})})
      for (const ParamGroup* group : sublayer.linears())
        for (const LinearSpec& linear : group->linears)
          if (std::ranges::find(all, linear.name) == all.end()) all.push_back(linear.name);  // kinds may share names
    return all;
  }();
  return names;
}

Layer describe_layer(const ModelConfig& config, int index) {
  return {describe_attention(config, config.window(index)), describe_swiglu(config)};
}

}  // namespace qft::model
