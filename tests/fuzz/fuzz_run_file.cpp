// A run file and the files that it names: any text gives a configuration that survives a dump and reload, or an error with a
// place.
#include "qft/core/error.h"
#include "qft/dialects/dialects.h"

#include <array>
#include <string>
#include <vector>

#include "fuzz/scratch_file.h"

namespace {

using namespace qft::config;  // NOLINT: a test

// A first byte selects the kind of the other bytes: a file, and the run-file key that names it (empty: the run file itself).
struct Kind {
  const char* file;
  const char* key;
};
constexpr std::array<Kind, 6> kKinds{{{"run.yaml", ""},
                                      {"run.json", ""},
                                      {"deepspeed.json", "deepspeed"},
                                      {"accelerate.yaml", "accelerate_config"},
                                      {"fsdp.yaml", "fsdp_config"},
                                      {"", ""}}};

RunConfig load_file(const std::string& file, const std::vector<std::string>& overrides = {}) {
  return load_run_config(file, overrides, Purpose::any, qft::dialects::all());
}

RunConfig load(const qft::test::ScratchFolder& folder, const Kind& kind, const std::uint8_t* data, std::size_t size) {
  if (*kind.file == '\0') return load_file({}, std::vector<std::string>{{reinterpret_cast<const char*>(data), size}});
  const std::string file = folder.write(kind.file, data, size);
  if (*kind.key == '\0') return load_file(file);
  const std::string fsdp = kind.key == std::string("fsdp_config") ? "true" : "null";
  return load_file({}, std::vector<std::string>{std::string(kind.key) + "=" + file, "fsdp=" + fsdp});
}

// The dump of a configuration is a run file with the same meaning. It contains the imported values, so it does not need the
// imported file again.
void require_round_trip(const qft::test::ScratchFolder& folder, RunConfig config) {
  config.training.deepspeed = config.training.fsdp = config.training.fsdp_config = nullptr;
  config.training.accelerate_config.clear();
  const std::string text = to_yaml(config);
  const std::string file = folder.write("dump.yaml", reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  if (to_json(load_file(file)) != to_json(config)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const qft::test::ScratchFolder folder;
  if (size == 0) return 0;
  const Kind& kind = kKinds[*data % kKinds.size()];
  RunConfig config;
  try {
    config = load(folder, kind, data + 1, size - 1);
    config.check_world(2);
  } catch (const qft::ConfigError& error) {
    if (*error.what() == '\0') std::abort();
    return 0;
  }
  require_round_trip(folder, config);
  return 0;
}
