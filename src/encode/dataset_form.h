// Guesses the format of records from the first ones. Private to encode.
#pragma once

#include "qft/config/stages.h"

#include <string>
#include <string_view>
#include <vector>

#include "first_records.h"

namespace qft::encode {

/// Sets formatting, columns and tags of `spec` by the evidence in `seen`; `where` names the files in messages. Optional columns
/// get their names even if no record has them (spec.optional_columns). Throws ConfigError if no format fits.
void decide_form(const FirstRecords& seen, const std::string& where, const config::Stage* stage, DatasetSpec& spec);

/// Sets the columns of an anchor and its documents; other columns of `spec` must be empty. Returns the column of the anchor's
/// messages, whose form is still to be decided; "" if the anchor is a text.
std::string decide_passages(const FirstRecords& seen, const std::string& where, DatasetSpec& spec);
/// Returns the columns with texts that a spec of passages does not read; not ids, labels and scores. `spec`: as decided.
std::vector<std::string> unread_texts(const FirstRecords& seen, const DatasetSpec& spec);
/// Returns what decide_passages() would have done with a column of this name and kind of values that no first record has; "" if
/// it would have ignored the column, or if the spec reads it. `spec`: as decided.
std::string describe_later_passage(std::string_view column, ValueKind kind, const DatasetSpec& spec);

/// Returns the columns that would have changed this decision if a record had had them.
std::vector<LaterColumn> columns_that_matter(const FirstRecords& seen, const config::Stage* stage, const DatasetSpec& spec);

/// Throws Error if a later record has a column, a form of messages or a role word that would have changed the decision by the
/// first records. Does nothing if the first records did not decide.
void require_as_decided(const simdjson::dom::object& record, const DatasetSpec& spec);

/// Formats "question, answer; not read: source".
std::string columns_read(const DatasetSpec& spec, const FirstRecords& seen);

}  // namespace qft::encode
