// Checks that a dataset has the columns and message keys that its description names.
#pragma once

#include "qft/encode/dataset_info.h"
#include "qft/encode/record_source.h"

namespace qft::encode {

/// Throws ConfigError if no record has a named key. The error lists the files, the key, the source of its name, and the
/// existing keys. One record with the key is enough: reads records until all keys are found, usually one.
void require_keys(const DatasetSpec& spec, const RecordSource& source);

}  // namespace qft::encode
