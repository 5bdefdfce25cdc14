// dataset_info.json: any bytes give datasets or an Error.
#include "qft/core/error.h"
#include "qft/encode/dataset_info.h"

#include "fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const qft::test::ScratchFolder folder;
  folder.write("dataset_info.json", data, size);
  for (const std::string name : {"a", "b#3", "c#x"}) {
    try {
      static_cast<void>(qft::encode::load_dataset_info(folder.path(), {&name, 1}));
    } catch (const qft::Error&) {
      // Refused.
    }
  }
  return 0;
}
