#include "qft/encode/item_columns.h"

namespace qft::encode {
namespace {

constexpr ItemColumn kFeedback[] = {
    {columns::kDesirable, [](const auto& tags, Column& column) { column.values.push_back(is_desirable(tags) ? 1.0 : 0.0); }}};
constexpr ItemColumn kSequenceLabel[] = {{columns::kTargets, [](const auto& tags, Column& column) {
                                            if (const auto targets = targets_from_tags(tags)) column.append_list(*targets);
                                          }}};
constexpr ItemColumn kTexts[] = {{columns::kPairLabel, [](const auto& tags, Column& column) {
                                    if (const auto label = targets_from_tags(tags); label && label->size() == 1)
                                      column.values.push_back(label->front());
                                  }}};

}  // namespace

std::span<const ItemColumn> item_columns(config::SampleKind kind) {
  if (kind == config::SampleKind::feedback) return kFeedback;
  if (kind == config::SampleKind::sequence_label) return kSequenceLabel;
  if (kind == config::SampleKind::texts) return kTexts;
  return {};
}

}  // namespace qft::encode
