// A list of messages as the turns of a conversation.
#pragma once

#include "qft/encode/conversation.h"
#include "qft/encode/dataset_info.h"
#include "qft/encode/drop_reason.h"

#include <optional>
#include <string>
#include <vector>

#include <simdjson.h>

namespace qft::encode {

/// Users and observations alternate with answers, as far as `fault` lets them.
struct Turns {
  std::vector<Message> messages;
  std::string system;         // the text of a system message at the beginning
  bool has_system = false;    // there is one
  std::optional<Drop> fault;  // why the record makes no item
};

/// An answer and the calls behind it become one turn, and so do the results of calls made at once. `first` is the role with
/// which the list may begin: with an answer it is a side of a pair. Throws Error for values of the wrong type.
Turns read_turns(const simdjson::dom::array& messages, const DatasetSpec& spec, Role first = Role::user);
/// The same of Formatting::turns, whose elements hold a question and its answer each; with `may_ask` the last one may lack the
/// answer.
Turns read_sides(const simdjson::dom::array& pairs, const DatasetSpec& spec, bool may_ask = false);

}  // namespace qft::encode
