// Where the lines of answers go. Private to eval.
#pragma once

#include "qft/comm/communicator.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::eval {

/// The line of a record that gets no answer, "" if it has no line at all; nullopt for any other.
using OtherLine = std::function<std::optional<std::string>(std::int64_t number)>;

/// Takes the lines of records 0, 1, ... in any order, and gives them in theirs.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  /// The numbers that need no answer any more, rising; the same on all ranks.
  virtual const std::vector<std::int64_t>& done() const = 0;
  /// The line of one answer of this rank. Throws Error if it cannot be written. Not collective.
  virtual void add(std::int64_t number, const nlohmann::ordered_json& line) = 0;
  /// All lines are there. Returns how many answers were cut off ("finish" is "length") on rank 0. Collective.
  virtual std::int64_t finish() = 0;
};

/// Throws ConfigError if `path` cannot become a file of answers: it is a folder, a pipe, a device, a link or another program's
/// file, or holds answers and may not be overwritten. Makes its folder. Not collective: rank 0's.
void require_output(const std::filesystem::path& path, bool overwrite);

/// Standard output for "-", of one rank: each line as soon as all before it are there. Else the file `output`: each rank appends
/// its lines to a file of its own in <output>.part as they come, so that a kill loses none of them, and finish() puts all in
/// order under `output`. Lines in <output>.part by the same `settings` (an object of all that they depend on) are kept. Those of
/// other settings are dropped if `overwrite`, else ConfigError names the differences; a folder of another program is always
/// refused. All nodes must see the folder. Collective; throws the same Error on all ranks if a rank cannot write there or another
/// run does.
std::unique_ptr<AnswerSink> open_sink(const std::string& output, const nlohmann::json& settings, bool overwrite,
                                      std::int64_t records, OtherLine other, comm::Communicator& comm);

}  // namespace qft::eval
