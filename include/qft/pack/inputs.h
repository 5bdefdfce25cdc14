// The inputs of a pack as JSON, so that a message can say which of them differ.
#pragma once

#include "qft/pack/format.h"

#include <nlohmann/json.hpp>

namespace qft::pack {

/// What is known before the items are made, which the fingerprint is of.
nlohmann::json pack_inputs(const PackAttributes& attributes);

/// The same with the names and sizes of the files.
nlohmann::json described_inputs(const PackAttributes& attributes);

/// "files" of a dataset, [[name, bytes], ...], and back from an object that may have it.
nlohmann::json files_as_json(const PackSource& source);
std::vector<PackFile> files_from_json(const nlohmann::json& source);

/// Throws ConfigError, naming each option, dataset and file that differs with both values, unless
/// `attributes` are those of the pack with which a run got to `position` (Loader::position()).
void require_same_pack(const nlohmann::json& position, const PackAttributes& attributes);

}  // namespace qft::pack
