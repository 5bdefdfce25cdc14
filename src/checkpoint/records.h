// The records of a manifest as JSON, as the file holds them and as ranks send them. Private to checkpoint.
#pragma once

#include "qft/checkpoint/manifest.h"
#include "qft/core/error.h"

#include <vector>

#include <nlohmann/json.hpp>

namespace qft::checkpoint {

/// An integer; throws Error where the value is another kind of number, which could lie outside of T.
template <class T>
T integer_of(const nlohmann::json& value) {
  require(value.is_number_integer(), "it has {} where an integer belongs: it is damaged", value.dump());
  return value.get<T>();
}

nlohmann::json to_json(const std::vector<FileRecord>& files);
nlohmann::json to_json(const std::vector<TensorRecord>& tensors);
nlohmann::json to_json(const RunRecord& run);
nlohmann::json to_json(const Box& box);
/// Throw nlohmann::json::exception for missing keys and wrong kinds, Error for an unknown dtype.
std::vector<FileRecord> files_from_json(const nlohmann::json& json);
/// `version`: of the manifest; what version 1 holds are whole tensors.
std::vector<TensorRecord> tensors_from_json(const nlohmann::json& json, int version = kManifestVersion);
RunRecord run_from_json(const nlohmann::json& json);
Box box_from_json(const nlohmann::json& json);

}  // namespace qft::checkpoint
