// A file from torch.save(): any bytes give tensors that can be read completely, or an Error. If the first byte is 1 to 127, the
// rest is only the pickle, in an archive with one record of 64 bytes, because the fuzzer cannot guess a zip's checksums.
#include "qft/core/error.h"
#include "qft/io/torch_file.h"

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/scratch_file.h"

namespace {

void number(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

std::string archive_of(const std::string& pickle) {
  std::string out, directory;
  for (const auto& [name, content] : {std::pair{"a/data.pkl", pickle}, std::pair{"a/data/0", std::string(64, 'x')}}) {
    const std::string where(name);
    const std::uint64_t at = out.size(), bytes = content.size();
    out += "PK\x03\x04";
    out.append(14, '\0');
    number(out, bytes, 4), number(out, bytes, 4), number(out, where.size(), 2), number(out, 0, 2);
    out += where + content;
    directory += "PK\x01\x02";
    directory.append(16, '\0');
    number(directory, bytes, 4), number(directory, bytes, 4), number(directory, where.size(), 2);
    directory.append(12, '\0');
    number(directory, at, 4);
    directory += where;
  }
  const std::uint64_t at = out.size();
  out += directory + "PK\x05\x06";
  number(out, 0, 4), number(out, 2, 2), number(out, 2, 2), number(out, directory.size(), 4), number(out, at, 4),
      number(out, 0, 2);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const qft::test::ScratchFolder folder;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] > 0 && data[0] < 128 && data[0] != 'P') bytes = archive_of(bytes.substr(1));
  const auto path = folder.write("a.pt", reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  try {
    const auto file = qft::io::TorchFile::open(path);
    std::vector<char> buffer;
    for (const auto& entry : file.entries()) {
      if (entry.bytes() > bytes.size()) std::abort();  // never more than the file holds
      buffer.resize(entry.bytes());
      file.read(entry, 0, entry.bytes(), buffer.data());
      if (file.find(entry.name) == nullptr) std::abort();
    }
  } catch (const qft::Error&) {
    // Refused.
  }
  return 0;
}
