// qft-ckpt convert FILE --output OUT: converts a file of tensors to safetensors.
#include "qft/core/units.h"
#include "qft/io/safetensors.h"

#include <algorithm>
#include <iostream>

#include "command.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::ckpt_tool {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

constexpr std::uint64_t kPieceBytes = 16 << 20;

config::CommandSpec spec() {
  config::CommandSpec spec = make_spec(
      "convert",
      "Converts a torch.save() file (.bin, .pt, .pth) to safetensors. Runs no code in the file. Tensors that share memory in the "
      "file become separate tensors.",
      "FILE", 1);
  spec.options.add_options()("output,o", po::value<std::string>(), "the file to write, NAME.safetensors");
  return spec;
}

void copy(const io::TensorFile& from, const fs::path& target) {
  std::vector<io::TensorSpec> tensors(from.entries().begin(), from.entries().end());
  io::sort_like_reference(tensors);
  const fs::path temp = target.parent_path() / (std::string(io::kTempPrefix) + target.filename().string());
  io::SafetensorsWriter writer(io::posix_storage(), temp, tensors);
  std::vector<char> piece;
  for (const io::TensorSpec& tensor : tensors) {
    const io::TensorEntry& entry = from.at(tensor.name);
    for (std::uint64_t at = 0; at < entry.bytes(); at += piece.size()) {
      piece.resize(std::min(kPieceBytes, entry.bytes() - at));
      from.read(entry, at, piece.size(), piece.data());
      writer.append(piece.data(), piece.size());
    }
  }
  writer.finish();
  io::posix_storage().rename(temp, target);
}

int run(const config::CommandLine& line) {
  if (line.words.size() != 1) fail_config("qft-ckpt convert: give one file instead of {}", line.words.size());
  const fs::path target = output_of(line, "convert", "the safetensors file to write");
  if (target.extension() != ".safetensors")
    fail_config("qft-ckpt convert: --output '{}' must end in .safetensors", target.string());
  io::require_absent_or_empty(target, "output file");
  const auto from = io::open_tensor_file(line.words[0]);
  require(!from->entries().empty(), "'{}' holds no tensors", line.words[0]);
  copy(*from, target);
  if (line.json)
    std::cout << nlohmann::ordered_json{{"path", target.string()},
                                        {"tensors", from->entries().size()},
                                        {"bytes", fs::file_size(target)}}
              << "\n";
  else
    std::cout << target.string() << ": " << from->entries().size() << " tensors, "
              << format_bytes(static_cast<double>(fs::file_size(target))) << "\n";
  return kExitOk;
}

}  // namespace

const Command kConvert{"convert", "converts a .bin or .pt file to safetensors", spec, run};

}  // namespace qft::ckpt_tool
