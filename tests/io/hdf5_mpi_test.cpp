// Parallel HDF5: every rank writes its part; the bytes do not depend on the number of ranks.
#include "qft/core/hash.h"
#include "qft/io/hdf5.h"

#include <filesystem>
#include <memory>
#include <numeric>
#include <string>

#include "io/temp_dir.h"
#include <gtest/gtest.h>
#include <mpi.h>

namespace qft::io::h5 {
namespace {

using test::contains;
using test::error_of;
using test::TempDir;

int rank() {
  int r = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &r);
  return r;
}

int world() {
  int n = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  return n;
}

// One directory for all ranks, removed by rank 0.
class SharedDir {
 public:
  SharedDir() {
    char name[256] = {};
    if (rank() == 0) {
      owned_ = std::make_unique<TempDir>();
      owned_->path().string().copy(name, sizeof name - 1);
    }
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    path_ = name;
  }
  ~SharedDir() { MPI_Barrier(MPI_COMM_WORLD); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::unique_ptr<TempDir> owned_;
  std::filesystem::path path_;
};

void write_pack(const std::filesystem::path& path, MPI_Comm comm, int part, int parts) {
  constexpr std::uint64_t kElements = 30011;
  const std::uint64_t begin = kElements * part / parts, end = kElements * (part + 1) / parts;
  std::vector<std::int32_t> tokens(end - begin);
  std::iota(tokens.begin(), tokens.end(), static_cast<std::int32_t>(begin));
  File file = File::create(path, comm);
  file.set_string("options", std::string(70000, 'o'));
  for (int i = 0; i < 12; ++i) file.set_int("count" + std::to_string(i), i);
  Dataset dataset = file.create_dataset<std::int32_t>("samples/tokens", kElements);
  Dataset rows = file.create_dataset("samples/spans", Type::u32, {4, 2});
  dataset.write_collective<std::int32_t>(begin, tokens);
  std::vector<std::uint32_t> values;
  if (part == 0) values = {0, 1, 2, 3, 4, 5, 6, 7};
  rows.write_collective<std::uint32_t>(0, values);
  file.close();
}

TEST(ParallelHdf5, AnyNumberOfRanksWritesTheSameBytes) {
  const SharedDir dir;
  write_pack(dir / "all.h5", MPI_COMM_WORLD, rank(), world());
  if (rank() == 0) write_pack(dir / "one.h5", MPI_COMM_SELF, 0, 1);
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_EQ(hash_file(dir / "all.h5"), hash_file(dir / "one.h5"));
  for (const bool collective : {false, true}) {
    const File file = collective ? File::open(dir / "all.h5", MPI_COMM_WORLD) : File::open(dir / "all.h5");
    std::int32_t value = 0;
    file.dataset("samples/tokens").read<std::int32_t>(12345, {&value, 1});
    EXPECT_EQ(value, 12345);
    EXPECT_EQ(file.dataset("samples/spans").read_all<std::uint32_t>()[7], 7u);
  }
}

TEST(ParallelHdf5, AFileThatOneRankCannotReachFailsOnAllRanks) {
  const SharedDir dir;
  const auto mine = dir / (rank() == world() - 1 ? "missing/f.h5" : "f.h5");
  EXPECT_TRUE(contains(error_of([&] { File::create(mine, MPI_COMM_WORLD); }), "rank " + std::to_string(world() - 1)));
  EXPECT_TRUE(contains(error_of([&] { File::open(dir / "none.h5", MPI_COMM_WORLD); }), "rank 0: cannot open"));
}

}  // namespace
}  // namespace qft::io::h5
