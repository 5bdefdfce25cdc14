#include "rewritten_model.h"

#include "qft/io/companion_files.h"

#include <algorithm>
#include <array>
#include <vector>

namespace qft::model {
namespace {

constexpr std::uint64_t kChunkBytes = 16 << 20;

}  // namespace

void copy_tensor(const io::TensorLocation& from, io::ModelWriter& to, bool zero) {
  const std::uint64_t total = from.entry->bytes();
  std::vector<char> bytes(std::min(total, kChunkBytes));
  for (std::uint64_t begin = 0; begin < total; begin += bytes.size()) {
    bytes.resize(std::min(kChunkBytes, total - begin));
    if (!zero) from.file->read(*from.entry, begin, bytes.size(), bytes.data());
    to.append(bytes.data(), bytes.size());
  }
}

void copy_configs(io::Storage& storage, const std::filesystem::path& from, const std::filesystem::path& to,
                  const ModelConfig& model, const std::function<void(nlohmann::ordered_json&)>& edit) {
  io::copy_existing(storage, from, to, std::array{io::kModelConfigFile, io::kGenerationConfigFile});
  io::copy_companions(storage, from, from, to);
  auto config = nlohmann::ordered_json::parse(model.raw);
  edit(config);
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) edit(*text);
  io::write_file(storage, to / io::kModelConfigFile, config.dump(2) + "\n");
}

}  // namespace qft::model
