// model.safetensors.index.json next to two shards: any bytes give a model made from these two, or an Error.
#include "qft/core/error.h"
#include "qft/io/model_files.h"

#include <filesystem>

#include "fuzz/scratch_file.h"

namespace {

/// a.safetensors holds w and v, b.safetensors x and another w; outside is a file that no index may reach.
void write_shards(const std::filesystem::path& parent) {
  using namespace qft::io;
  const auto dir = parent / "model";
  std::filesystem::create_directories(dir);
  const auto write = [](const std::filesystem::path& path, std::vector<TensorSpec> specs, std::size_t bytes) {
    SafetensorsWriter writer(posix_storage(), path, std::move(specs));
    writer.append(std::string(bytes, 'x').data(), bytes);
    writer.finish();
  };
  write(dir / "a.safetensors", {{"w", qft::DType::u8, {2}}, {"v", qft::DType::u8, {1}}}, 3);
  write(dir / "b.safetensors", {{"x", qft::DType::u8, {4}}, {"w", qft::DType::u8, {2}}}, 6);
  write(parent / "outside.safetensors", {{"w", qft::DType::u8, {2}}}, 2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const qft::test::ScratchFolder folder;
  static const bool written = (write_shards(folder.path()), true);
  static_cast<void>(written);
  folder.write("model/model.safetensors.index.json", data, size);
  try {
    const auto model = qft::io::ModelFiles::open(folder.path() / "model");
    for (const auto& file : model.files())
      if (file->path().parent_path() != folder.path() / "model") std::abort();
    for (const std::string& name : model.names()) {
      std::string bytes(model.at(name).entry->bytes(), '\0');
      model.read(name, 0, bytes.size(), bytes.data());
      if (bytes.find_first_not_of('x') != bytes.npos) std::abort();
    }
  } catch (const qft::Error&) {
    // Refused.
  }
  return 0;
}
