// Items of stages embedding and reranker: an anchor or a query with its documents. Private to pack.
#pragma once

#include "qft/config/stages.h"
#include "qft/encode/conversation.h"
#include "qft/encode/dataset_info.h"
#include "qft/encode/drop_reason.h"
#include "qft/encode/item.h"

#include <cstdint>
#include <optional>

namespace qft::pack {

/// Sets the relevant documents by the record's label, leaves out negatives that are empty texts (adds them to
/// `empty_negatives`), and adds the tags of the item. Returns the reason if the record yields no item. Throws Error if the
/// record contradicts the stage.
std::optional<encode::Drop> prepare_passages(encode::Conversation& conversation, const encode::DatasetSpec& spec,
                                             config::SampleKind sample, std::int64_t& empty_negatives);

}  // namespace qft::pack
