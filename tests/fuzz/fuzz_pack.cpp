// A pack file: any bytes are read after verification, or refused.
#include "qft/core/error.h"
#include "qft/pack/reader.h"

#include "fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const qft::test::ScratchFolder folder;
  const auto path = folder.write("p.h5", data, size);
  try {
    const auto pack = qft::pack::PackReader::open(path);
    qft::pack::FlatItem item;
    for (std::int64_t i = 0; i < pack->num_items(); ++i) {
      try {
        pack->read(i, item);
      } catch (const qft::Error&) {
        // This item is damaged; others may be good.
      }
    }
    pack->verify();
  } catch (const qft::Error&) {
    // Refused.
  }
  return 0;
}
