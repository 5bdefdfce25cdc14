// Describes the inputs of a pack as JSON, so that a message can name the inputs that differ.
#pragma once

#include "qft/pack/format.h"

#include <nlohmann/json.hpp>

namespace qft::pack {

/// Returns the inputs known before the items are made: the fingerprint's content.
nlohmann::json pack_inputs(const PackAttributes& attributes);

/// Like pack_inputs(), with the names and sizes of the files.
nlohmann::json described_inputs(const PackAttributes& attributes);

/// Converts a dataset's files to "files", [[name, bytes], ...], and back from an object that may have this key.
nlohmann::json files_as_json(const PackSource& source);
std::vector<PackFile> files_from_json(const nlohmann::json& source);

/// Throws ConfigError unless `attributes` describe the pack with which a run got to `position` (Loader::position()). The message
/// names each differing option, dataset and file with both values.
void require_same_pack(const nlohmann::json& position, const PackAttributes& attributes);

}  // namespace qft::pack
