// Destination of answer lines: standard output or a file. Private to eval.
#pragma once

#include "qft/comm/communicator.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::eval {

/// Returns the line of a record that needs no answer, "" if it gets no line; nullopt for a record that is answered.
using UnansweredLine = std::function<std::optional<std::string>(std::int64_t number)>;

/// Takes the lines of records 0, 1, ... in any order and writes them in record order.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  /// Returns the records that are already answered, ascending; the same on all ranks.
  virtual const std::vector<std::int64_t>& done() const = 0;
  /// Adds the line of one answer of this rank. Throws Error if it cannot be written. Not collective.
  virtual void add(std::int64_t number, const nlohmann::ordered_json& line) = 0;
  /// Completes the output after the last add(). On rank 0 returns how many answers were cut off ("finish" is "length").
  /// Collective.
  virtual std::int64_t finish() = 0;
};

/// Throws ConfigError if `path` cannot become an answers file: a folder, pipe, device, link or another program's file, or a file
/// with answers and `overwrite` is false. Creates the parent folder. Not collective: rank 0 calls it.
void require_output(const std::filesystem::path& path, bool overwrite);

/// Opens standard output for "-" (one rank only): each line is printed once all earlier lines are there. Otherwise opens the file
/// `output`: each rank appends its lines to a separate file in <output>.part as they come, so a kill loses none, and finish()
/// merges them in order into `output`. Lines already in <output>.part are kept if they have the same `settings` (an object with
/// everything that answers depend on). With other settings they are dropped if `overwrite`; otherwise ConfigError lists the
/// differences. A folder of another program is always refused. All nodes must see the folder. Collective; throws the same Error
/// on all ranks if a rank cannot write there or another run does.
std::unique_ptr<AnswerSink> open_sink(const std::string& output, const nlohmann::json& settings, bool overwrite,
                                      std::int64_t records, UnansweredLine other, comm::Communicator& comm);

}  // namespace qft::eval
