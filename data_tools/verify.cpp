// qft-pack verify PACK...: reads whole packs and checks all checksums and all rules of the format.
#include "qft/core/error.h"
#include "qft/core/progress.h"
#include "qft/pack/reader.h"

#include <iostream>

#include "command.h"

namespace qft::pack_tool {
namespace {

config::CommandSpec spec() {
  config::CommandSpec spec =
      make_spec("verify", "Reads whole packs and checks all checksums and all rules of the format.", "PACK...");
  spec.min_words = 1;
  return spec;
}

int run(const config::CommandLine& line) {
  for (const std::string& path : line.words) {
    const auto pack = pack::PackReader::open(path);
    Progress bar("verifying", pack->num_items());
    pack->verify([&](std::int64_t done) { bar.update(done); });
    bar.clear();
    if (line.json)
      std::cout << nlohmann::ordered_json{{"path", path}, {"items", pack->num_items()}, {"ok", true}} << "\n";
    else
      std::cout << path << ": " << pack->num_items() << " items, all whole\n";
  }
  return kExitOk;
}

}  // namespace

const Command kVerify{"verify", spec, run};

}  // namespace qft::pack_tool
