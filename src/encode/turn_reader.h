// Reads a list of messages as the turns of a conversation.
#pragma once

#include "qft/encode/conversation.h"
#include "qft/encode/dataset_info.h"
#include "qft/encode/drop_reason.h"

#include <optional>
#include <string>
#include <vector>

#include <simdjson.h>

namespace qft::encode {

/// Users and observations alternate with answers, up to the first `fault`.
struct Turns {
  std::vector<Message> messages;
  std::string system;         // text of the leading system message
  bool has_system = false;    // there is a leading system message
  std::optional<Drop> fault;  // why the record yields no item
};

/// Merges an answer with the calls after it into one turn, and the results of parallel calls too. `first` is the role that the
/// list may begin with: an answer if the list is one side of a pair. Throws Error for values of the wrong type.
Turns read_turns(const simdjson::dom::array& messages, const DatasetSpec& spec, Role first = Role::user);
/// Does the same for Formatting::turns: each element holds a question and its answer. With `may_ask`, the last element may lack
/// the answer.
Turns read_sides(const simdjson::dom::array& pairs, const DatasetSpec& spec, bool may_lack_answer = false);

}  // namespace qft::encode
