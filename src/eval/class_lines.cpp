#include "class_lines.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/ranges.h>

namespace qft::eval {
namespace {

std::string list_of(std::span<const float> values) {
  std::vector<std::string> numbers;
  for (const float value : values) numbers.push_back(float_text(value));
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

std::vector<float> softmax(std::span<const float> values) {
  const double most = static_cast<double>(std::ranges::max(values));
  double sum = 0.0;
  for (const float value : values) sum += std::exp(static_cast<double>(value) - most);
  std::vector<float> all;
  for (const float value : values) all.push_back(static_cast<float>(std::exp(static_cast<double>(value) - most) / sum));
  return all;
}

std::vector<float> sigmoid(std::span<const float> values) {
  std::vector<float> all;
  for (const float value : values) all.push_back(static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(value)))));
  return all;
}

}  // namespace

std::string float_text(float value) {
  return std::isfinite(value) ? fmt::format("{}", value) : std::string("null");
}

std::string class_members(std::string_view problem_type, std::span<const float> values) {
  const std::string logits = list_of(values);
  if (problem_type == "regression")
    return fmt::format(R"("label": {}, "logits": {})", values.size() == 1 ? float_text(values.front()) : logits, logits);
  const bool one = problem_type == "single_label_classification";
  std::string label = fmt::format("{}", std::ranges::max_element(values) - values.begin());
  if (std::ranges::any_of(values, [](float value) { return std::isnan(value); })) {
    label = "null";  // NaN: no value is the largest
  } else if (!one) {
    std::vector<std::size_t> there;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] >= 0.0F) there.push_back(i);
    label = fmt::format("[{}]", fmt::join(there, ", "));
  }
  return fmt::format(R"("label": {}, "probabilities": {}, "logits": {})", label, list_of(one ? softmax(values) : sigmoid(values)),
                     logits);
}

std::string vector_members(std::int64_t width, std::span<const float> values) {
  std::vector<std::string> vectors;
  for (; !values.empty(); values = values.subspan(static_cast<std::size_t>(width)))
    vectors.push_back(list_of(values.first(static_cast<std::size_t>(width))));
  return fmt::format(R"("embeddings": [{}])", fmt::join(vectors, ", "));
}

std::string ranking_members(std::span<const float> scores) {
  return fmt::format(R"("scores": {}, "probabilities": {})", list_of(scores), list_of(sigmoid(scores)));
}

}  // namespace qft::eval
