#include "qft/job/output_dir.h"

#include "qft/comm/exchange.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"
#include "qft/job/batch_job.h"

#include <chrono>
#include <thread>

#include <fmt/format.h>

namespace qft::job {
namespace fs = std::filesystem;

OutputDir::CreatedDirs::~CreatedDirs() {
  std::error_code ignored;
  if (!dirs.empty()) fs::remove(dirs.front() / kPackFolder, ignored);
  for (const fs::path& dir : dirs) fs::remove(dir, ignored);  // fails if the directory is not empty
}

OutputDir::OutputDir(const fs::path& dir, comm::Communicator& comm, const char* program) {
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    for (fs::path path = fs::absolute(dir).lexically_normal(); !fs::exists(path) && path.has_relative_path();
         path = path.parent_path())
      if (path.has_filename()) created_.dirs.push_back(path);
    io::probe_writable(dir);
    lock_.emplace(dir, io::this_process(program, this_job().job, this_job().restarts.value_or(-1)));
  });
}

std::vector<bool> ranks_sharing(comm::Communicator& comm, const fs::path& dir) {
  const std::string name = comm::on_root(comm, [&] {
    // The name must be new: an old file on a private disk would look like rank 0's.
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    const std::string probe = fmt::format("{}probe-{:x}", io::kTempPrefix, now);
    io::write_file(io::posix_storage(), dir / probe, "");
    return probe;
  });
  bool sees = fs::exists(dir / name);
  // Network file systems may show a new name with a delay.
  for (int attempt = 0; attempt < 5 && !sees && fs::exists(dir); ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 << attempt));
    std::error_code ignored;
    static_cast<void>(fs::directory_iterator(dir, ignored));
    sees = fs::exists(dir / name);
  }
  const auto all = comm::all_gather_value<std::int32_t>(comm, sees ? 1 : 0);
  std::error_code ignored;
  if (comm.rank() == 0) fs::remove(dir / name, ignored);
  return {all.begin(), all.end()};
}

}  // namespace qft::job
