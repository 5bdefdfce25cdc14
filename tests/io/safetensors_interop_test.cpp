#include "qft/io/safetensors.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "io/temp_dir.h"
#include "test_paths.h"
#include <gtest/gtest.h>

namespace qft::io {

using test::kSourceDir;
using test::read_bytes;
using test::TempDir;

bool python(const std::string& arguments) {
  const std::string command = kSourceDir + "/.venv/bin/python " + kSourceDir + "/tests/io/safetensors_interop.py " + arguments;
  return std::system(command.c_str()) == 0;
}

bool have_python() {
  return std::filesystem::exists(kSourceDir + "/.venv/bin/python");
}

TEST(SafetensorsInterop, PythonAndQftWriteTheSameBytes) {
  if (!have_python()) GTEST_SKIP() << "no .venv: run scripts/setup.sh";
  const TempDir dir;
  ASSERT_TRUE(python("write " + (dir / "python").string()));
  const auto file = SafetensorsFile::open(dir / "python");
  EXPECT_EQ(file.entries().size(), 12u);
  EXPECT_EQ(file.at("w.BF16").dtype, DType::bf16);
  float value = 0;
  file.read(file.at("w.F32"), 4 * 7, 4, &value);
  EXPECT_EQ(value, 1.75f);

  // qft copies from a shuffled list; sorted like the reference, the file has the same bytes.
  std::vector<TensorSpec> specs(file.entries().rbegin(), file.entries().rend());
  sort_like_reference(specs);
  SafetensorsWriter writer(posix_storage(), dir / "qft", specs, file.metadata());
  for (const TensorSpec& spec : specs) {
    const Mapping data = file.map(file.at(spec.name));
    writer.append(data.data(), data.size());
  }
  writer.finish();
  EXPECT_TRUE(python("check " + (dir / "qft").string()));
  EXPECT_EQ(read_bytes(dir / "qft"), read_bytes(dir / "python"));
}

}  // namespace qft::io
