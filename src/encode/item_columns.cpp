#include "qft/encode/item_columns.h"

namespace qft::encode {
namespace {

constexpr ItemColumn kFeedback[] = {
    {columns::kDesirable, [](const auto& tags, Column& column) { column.values.push_back(is_desirable(tags) ? 1.0 : 0.0); }}};
constexpr ItemColumn kSequenceLabel[] = {{columns::kTargets, [](const auto& tags, Column& column) {
                                            if (const auto targets = targets_from_tags(tags)) column.append_list(*targets);
                                          }}};

}  // namespace

std::span<const ItemColumn> item_columns(config::SampleKind kind) {
  if (kind == config::SampleKind::feedback) return kFeedback;
  if (kind == config::SampleKind::sequence_label) return kSequenceLabel;
  return {};
}

}  // namespace qft::encode
