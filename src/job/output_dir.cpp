#include "qft/job/output_dir.h"

#include "qft/comm/exchange.h"
#include "qft/io/file.h"
#include "qft/job/batch_job.h"

namespace qft::job {
namespace fs = std::filesystem;

OutputDir::Made::~Made() {
  std::error_code ignored;
  if (!dirs.empty()) fs::remove(dirs.front() / kPackFolder, ignored);
  for (const fs::path& dir : dirs) fs::remove(dir, ignored);  // refused where it is not empty
}

OutputDir::OutputDir(const fs::path& dir, comm::Communicator& comm, const char* program) {
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    for (fs::path path = fs::absolute(dir).lexically_normal(); !fs::exists(path) && path.has_relative_path();
         path = path.parent_path())
      if (path.has_filename()) made_.dirs.push_back(path);
    io::probe_writable(dir);
    lock_.emplace(dir, io::this_process(program, this_job().job, this_job().restarts.value_or(-1)));
  });
}

}  // namespace qft::job
