#include "lines_file.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"

#include <utility>

namespace qft::eval {

LinesFile::LinesFile(std::filesystem::path path, std::string key, const parallel::Groups& groups)
    : path_(std::move(path)), key_(std::move(key)), comm_(groups.all()), is_lead_(groups.is_lead()) {
  comm::agreed(comm_, [&] {
    if (comm_.rank() != 0) return;
    out_.open(path_);
    require(out_.good(), "cannot write {} '{}'", key_, path_.string());
  });
}

void LinesFile::add(const std::string& mine) {
  for (const auto& text : comm::all_gather_strings(comm_, is_lead_ ? mine : std::string()))
    if (comm_.rank() == 0) out_ << text;
}

void LinesFile::close() {
  comm::agreed(comm_, [&] {
    if (comm_.rank() != 0) return;
    out_.close();
    require(!out_.fail(), "cannot write {} '{}': is the disk full?", key_, path_.string());
  });
}

}  // namespace qft::eval
