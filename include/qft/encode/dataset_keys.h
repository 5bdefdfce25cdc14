// Whether a dataset has the columns and the keys of messages that its description names.
#pragma once

#include "qft/encode/dataset_info.h"
#include "qft/encode/record_source.h"

namespace qft::encode {

/// Throws ConfigError with the files, the key that no record has, who names it, and the keys that are there.
/// A key counts as there where any record has it: records are read until all are found, mostly one.
void require_keys(const DatasetSpec& spec, const RecordSource& source);

}  // namespace qft::encode
