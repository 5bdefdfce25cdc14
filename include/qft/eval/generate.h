// Answers to the prompts of a file.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"

#include <cstdint>
#include <string>

#include <c10/core/Device.h>
#include <nlohmann/json_fwd.hpp>

namespace qft::eval {

/// "-" as input: standard input; as output: standard output.
inline constexpr const char* kStandardStream = "-";

struct GenerateResult {
  std::string output;           ///< the file that was written
  std::int64_t records = 0;     ///< of the input
  std::int64_t errors = 0;      ///< of them could not be answered
  std::int64_t earlier = 0;     ///< were answered by earlier starts
  std::int64_t cut_off = 0;     ///< answers that end at their limit, those of earlier starts too
  std::int64_t new_tokens = 0;  ///< of this start
  double seconds = 0.0;         ///< of answering, without reading prompts and model

  nlohmann::ordered_json values() const;
  /// One line: what was answered, how fast, and where it is.
  std::string describe() const;
};

/// Answers every record of `input` (a file, a folder, a name of dataset_info.json, "-"), a JSON line each in the order of the
/// records:
///
///   {"index": 0, "id": ..., "prompt": ..., "predict": ..., "label": ..., "finish": "stop" or "length", "prompt_tokens": 31,
///    "new_tokens": 12}
///
/// or "index", "id" and "error" if it cannot be answered; docs/generate.md says what each is. Sampling is by the record's number:
/// answers do not depend on ranks or batch size. Goes on where a run with the same settings was stopped. Collective: ranks share
/// the work. Throws ConfigError before the model is loaded if the input holds no prompt or the output may not be written.
GenerateResult generate(const config::RunConfig& config, const std::string& input, const std::string& output,
                        comm::Communicator& comm, c10::Device device);

}  // namespace qft::eval
