// How records are read, told from what the first of them show. Private to encode.
#pragma once

#include <string>
#include <string_view>

#include "first_records.h"

namespace qft::encode {

/// Sets formatting, columns and tags of `spec` to what `seen` shows; `where`: the files, for messages. Columns that may be
/// missing have their names even where no record has them: spec.unseen. Throws ConfigError where no format fits.
void decide_form(const Seen& seen, const std::string& where, std::string_view stage, DatasetSpec& spec);

/// The columns that would have changed this, had a record had them.
std::vector<LaterColumn> columns_that_matter(const Seen& seen, std::string_view stage, const DatasetSpec& spec);

/// Throws Error where a later record has a column, a form of messages or a word for a role with which the first records would
/// have been read otherwise. Nothing where they did not decide.
void require_as_decided(const simdjson::dom::object& record, const DatasetSpec& spec);

/// "question, answer; not read: source".
std::string columns_read(const DatasetSpec& spec, const Seen& seen);

}  // namespace qft::encode
