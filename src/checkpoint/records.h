// Converts a manifest's records to and from JSON, in the form of the file and of messages between ranks. Private to checkpoint.
#pragma once

#include "qft/checkpoint/manifest.h"
#include "qft/core/error.h"

#include <vector>

#include <nlohmann/json.hpp>

namespace qft::checkpoint {

/// Returns an integer; throws Error for any other kind of number, which could exceed T.
template <class T>
T integer_of(const nlohmann::json& value) {
  require(value.is_number_integer(), "it has {} instead of an integer: it is damaged", value.dump());
  return value.get<T>();
}

nlohmann::json to_json(const std::vector<FileRecord>& files);
nlohmann::json to_json(const std::vector<TensorRecord>& tensors);
nlohmann::json to_json(const RunRecord& run);
nlohmann::json to_json(const Box& box);
/// Throw nlohmann::json::exception for missing keys and wrong kinds, Error for an unknown dtype.
std::vector<FileRecord> files_from_json(const nlohmann::json& json);
/// `version`: the manifest's; version 1 has whole tensors only.
std::vector<TensorRecord> tensors_from_json(const nlohmann::json& json, int version = kManifestVersion);
RunRecord run_from_json(const nlohmann::json& json);
Box box_from_json(const nlohmann::json& json);

}  // namespace qft::checkpoint
