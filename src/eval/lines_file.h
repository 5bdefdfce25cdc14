// JSON lines of an evaluation, written by rank 0 in the order of the source.
#pragma once

#include "qft/parallel/groups.h"

#include <filesystem>
#include <fstream>
#include <string>

namespace qft::eval {

class LinesFile {
 public:
  /// `key` names the file in errors. `groups` must outlive the file. Collective; throws Error on all ranks if rank 0 cannot
  /// write.
  LinesFile(std::filesystem::path path, std::string key, const parallel::Groups& groups);
  /// Appends the data ranks' texts in rank order: rank r's micro-batch of a round precedes rank r + 1's. Collective.
  void add(const std::string& mine);
  /// Throws Error if not everything could be written. Collective.
  void close();

 private:
  std::filesystem::path path_;
  std::string key_;
  comm::Communicator& comm_;
  bool is_lead_;
  std::ofstream out_;
};

}  // namespace qft::eval
