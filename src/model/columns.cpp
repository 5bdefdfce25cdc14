#include "qft/model/columns.h"

#include "qft/core/error.h"

#include <vector>

#include <fmt/ranges.h>

namespace qft::model {

const InputColumn& InputColumns::at(std::string_view name) const {
  const auto found = columns_.find(name);
  if (found != columns_.end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& [other, column] : columns_) names.push_back(other);
  fail("a micro-batch lacks the column '{}', which the objective reads; it has {}", name,
       names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", ")));
}

at::Tensor InputColumns::find(std::string_view name) const {
  const auto found = columns_.find(name);
  return found == columns_.end() ? at::Tensor() : found->second.values;
}

}  // namespace qft::model
