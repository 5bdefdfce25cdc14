#include "qft/plan/footprint.h"

#include "qft/core/units.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include <fmt/format.h>

namespace qft::plan {

std::string describe(const MemoryPlan& p) {
  std::array<std::pair<std::int64_t, const char*>, 7> parts = {{{p.weights, "weights"},
                                                                {p.gathered, "gathered weights"},
                                                                {p.gradients, "gradients"},
                                                                {p.optimizer, "optimizer"},
                                                                {p.activations, "activations"},
                                                                {p.buffers, "buffers"},
                                                                {p.reference, "reference"}}};
  std::sort(parts.begin(), parts.end(), std::greater<>());
  std::string text;
  for (const auto& [bytes, name] : parts)
    if (bytes > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_bytes(static_cast<double>(bytes)));
  if (p.peak_overlap > 0)
    text += fmt::format("; {} less, because gathered weights, gradients and temporaries peak at different times",
                        format_bytes(static_cast<double>(p.peak_overlap)));
  if (p.host > 0) text += fmt::format("; in host memory {}", format_bytes(static_cast<double>(p.host)));
  return text;
}

}  // namespace qft::plan
