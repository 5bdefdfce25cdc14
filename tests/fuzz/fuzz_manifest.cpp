// manifest.json: any bytes give a consistent manifest or an Error. The target first corrects the checksum if possible, because a
// fuzzer cannot guess one. It then verifies, compares and summarises a parsed manifest next to real files.
#include "qft/checkpoint/checkpoint.h"
#include "qft/checkpoint/diff.h"
#include "qft/checkpoint/inspect.h"
#include "qft/checkpoint/verify.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/json.h"

#include <algorithm>

#include "fuzz/scratch_file.h"

namespace {

using namespace qft::checkpoint;  // NOLINT: a test

std::string with_checksum(std::string text) {
  try {
    auto document = qft::parse_json(text, "input");
    if (!document.is_object()) return text;
    document.erase("checksum");
    const std::string checksum = qft::hash_hex(document.dump());
    document["checksum"] = checksum;
    return document.dump(1) + "\n";
  } catch (const qft::Error&) {
    return text;
  }
}

void write_files(const std::filesystem::path& dir) {
  for (int rank = 0; rank < 2; ++rank) {
    const std::string name = "qft_state-0000" + std::to_string(rank) + "-of-00002.safetensors";
    qft::io::SafetensorsWriter writer(
        qft::io::posix_storage(), dir / name,
        {{"w[" + std::to_string(rank * 2) + ":" + std::to_string(rank * 2 + 2) + "]", qft::DType::f32, {2}}},
        {{"format", kShardFormat}});
    const float values[2] = {1, 2};
    writer.append(values, sizeof values);
    writer.finish();
  }
}

void use(const std::filesystem::path& dir) {
  try {
    const Checkpoint checkpoint = Checkpoint::open(dir);
    for (const TensorRecord& tensor : checkpoint.manifest().tensors) {
      const std::uint64_t end = std::min<std::uint64_t>(tensor.elements(), 1024);
      std::string bytes(end * size_of(tensor.dtype), '\0');
      checkpoint.read_tensor_range(tensor.name, 0, end, bytes.data());
    }
  } catch (const qft::Error&) {
    // A file differs from the manifest.
  }
  static_cast<void>(verify(dir));
  try {
    static_cast<void>(format_summary(summarize(dir)));
    static_cast<void>(format_difference(diff(dir, dir), 5));
  } catch (const qft::Error&) {
    // Refused.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const qft::test::ScratchFolder folder;
  static const bool written = (write_files(folder.path()), true);
  static_cast<void>(written);
  const std::string text = with_checksum({reinterpret_cast<const char*>(data), size});
  try {
    const Manifest manifest = Manifest::parse(text);
    if (Manifest::parse(manifest.to_text()).to_text() != manifest.to_text()) std::abort();
  } catch (const qft::Error&) {
    return 0;
  }
  folder.write(kManifestFile, reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  use(folder.path());
  return 0;
}
