// A safetensors file: any bytes give tensors that can be read completely, or an Error.
#include "qft/core/error.h"
#include "qft/io/safetensors.h"

#include <algorithm>
#include <vector>

#include "fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const qft::test::ScratchFolder folder;
  const auto path = folder.write("a.safetensors", data, size);
  try {
    const auto file = qft::io::SafetensorsFile::open(path);
    std::uint64_t bytes = 0;
    std::vector<char> buffer;
    for (const auto& entry : file.entries()) {
      buffer.resize(entry.bytes());  // never more than the file holds
      file.read(entry, 0, entry.bytes(), buffer.data());
      bytes += entry.bytes();
      if (file.find(entry.name) == nullptr) std::abort();
    }
    if (bytes > size) std::abort();
  } catch (const qft::Error&) {
    // Refused.
  }
  return 0;
}
