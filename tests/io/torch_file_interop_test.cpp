#include "qft/io/safetensors.h"
#include "qft/io/torch_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "io/temp_dir.h"
#include "test_paths.h"
#include <gtest/gtest.h>

namespace qft::io {

using test::contains;
using test::error_of;
using test::kSourceDir;
using test::TempDir;

namespace fs = std::filesystem;

/// Files that torch writes, once for all tests of this program; empty without Python.
const fs::path& files() {
  static const TempDir dir;
  static const bool made =
      fs::exists(kSourceDir + "/.venv/bin/python") &&
      std::system(
          (kSourceDir + "/.venv/bin/python " + kSourceDir + "/tests/io/torch_file_interop.py " + dir.path().string()).c_str()) ==
          0;
  static const fs::path folder = made ? dir.path() : fs::path();
  return folder;
}

std::string bytes_of(const TensorFile& file, const TensorEntry& entry) {
  std::string bytes(entry.bytes(), '\0');
  file.read(entry, 0, bytes.size(), bytes.data());
  return bytes;
}

class TorchFileInterop : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(kSourceDir + "/.venv/bin/python")) GTEST_SKIP() << "no .venv: run scripts/setup.sh";
    ASSERT_FALSE(files().empty()) << "torch_file_interop.py failed";
  }
};

TEST_F(TorchFileInterop, HoldsWhatTorchSaved) {
  int compared = 0;
  for (const auto& item : fs::directory_iterator(files())) {
    if (item.path().extension() != ".pt") continue;
    const auto ours = TorchFile::open(item.path());
    const auto judge = SafetensorsFile::open(fs::path(item.path()).replace_extension(".safetensors"));
    EXPECT_EQ(ours.entries().size(), judge.entries().size()) << item.path();
    for (const TensorEntry& entry : judge.entries()) {
      SCOPED_TRACE(item.path().string() + ": " + entry.name);
      const TensorEntry* mine = ours.find(entry.name);
      ASSERT_NE(mine, nullptr);
      EXPECT_EQ(mine->dtype, entry.dtype);
      EXPECT_EQ(mine->shape, entry.shape);
      EXPECT_EQ(bytes_of(ours, *mine), bytes_of(judge, entry));
      ++compared;
    }
  }
  EXPECT_GT(compared, 3000);
}

TEST_F(TorchFileInterop, AnyRangeOfATensorIsThatOfTheWhole) {
  const auto file = TorchFile::open(files() / "views.pt");
  std::mt19937 random(7);
  for (const TensorEntry& entry : file.entries()) {
    const std::string whole = bytes_of(file, entry);
    const std::uint64_t width = size_of(entry.dtype), elements = entry.elements();
    for (int i = 0; i < 50; ++i) {
      const std::uint64_t first = random() % (elements + 1), count = random() % (elements - first + 1);
      std::string part(count * width, '\0');
      file.read(entry, first * width, part.size(), part.data());
      EXPECT_EQ(part, whole.substr(first * width, part.size())) << entry.name;
    }
    EXPECT_TRUE(contains(error_of([&] { file.read(entry, whole.size(), 1, nullptr); }), "requested, it has"));
  }
}

TEST_F(TorchFileInterop, RefusesAllElseByNameAndRunsNothing) {
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"system", "asks for 'posix.system'. qft reads only tensors and runs nothing"},
      {"eval", "asks for '__builtin__.eval'"},
      {"exec_4", "asks for 'builtins.exec'"},
      {"training_args", "asks for 'collections.Counter'"},
      {"sparse", "asks for 'torch._utils._rebuild_sparse_tensor'"},
      {"expanded", "tensor 'w' repeats elements of its storage (3000 of 3): save it with .clone()"},
      {"complex", "asks for 'torch.ComplexFloatStorage'"},
      {"float8", "asks for 'torch._utils._rebuild_tensor_v3'"},
      {"single", "but a single tensor"},
      {"legacy", "before torch 1.6"},
      {"script", "is a TorchScript program"},
      {"compressed", "is compressed, which torch.save() never does"},
      {"big_endian", "its byte order is 'big', not 'little'"},
      {"no_pickle", "has no record data.pkl"},
      {"no_record", "data/1', which is missing"},
      {"short_record", "in a record of"},
      {"truncated", "it is truncated or not a zip archive"},
      {"no_zip", "it is truncated or not a zip archive"}};
  for (const auto& [name, message] : expected) {
    const fs::path path = files() / "refused" / (name + ".pt");
    const std::string error = error_of([&] { TorchFile::open(path); });
    EXPECT_TRUE(contains(error, message));
    EXPECT_TRUE(contains(error, path.string()));
  }
  EXPECT_FALSE(fs::exists(files() / "EXECUTED"));
  const auto written = std::distance(fs::directory_iterator(files() / "refused"), fs::directory_iterator());
  EXPECT_EQ(written, static_cast<std::ptrdiff_t>(expected.size()));
}

}  // namespace qft::io
