#include "qft/comm/exchange.h"
#include "qft/core/hash.h"
#include "qft/io/model_files.h"
#include "qft/io/safetensors.h"
#include "qft/io/storage.h"
#include "qft/ops/philox.h"
#include "qft/pack/builder.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "encode/fixture.h"
#include "grid.h"
#include "io/temp_dir.h"
#include <fmt/format.h>

namespace qft::parallel::grid {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kVocabulary = 53;

std::uint32_t random(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return ops::philox({a, b, c, 0}, {11, 3})[0];
}

/// Values in center + [-0.3, 0.3), which depend on the tensor's name and the element alone.
std::vector<float> values_of(const io::TensorSpec& tensor) {
  const auto site = static_cast<std::uint32_t>(std::stoul(hash_hex(tensor.name).substr(0, 8), nullptr, 16));
  const float center = tensor.name.find("norm") != std::string::npos ? 1.0F : 0.0F;
  std::vector<float> values(tensor.bytes() / sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = center + 0.3F * (static_cast<float>(random(static_cast<std::uint32_t>(i), site, 1)) / 2147483648.0F - 1.0F);
  return values;
}

void write_model(const fs::path& dir, std::string_view config) {
  fs::create_directories(dir);
  std::ofstream(dir / io::kModelConfigFile) << config;
  const auto spec =
      model::ModelSpec::build(model::ModelConfig::parse(std::string(config), "grid"), model::Finetuning::full, {}, {});
  std::vector<io::TensorSpec> tensors;
  for (const auto& unit : spec.units)
    for (const auto& p : unit.params)
      for (const model::FileTensor& part : p.in_files()) tensors.push_back({part.name, DType::f32, part.shape});
  io::SafetensorsWriter writer(io::posix_storage(), dir / io::kSingleFile, tensors);
  for (const io::TensorSpec& tensor : tensors) {
    const std::vector<float> values = values_of(tensor);
    writer.append(values.data(), values.size() * sizeof(float));
  }
  writer.finish();
  const test::TempFolder tokenizer;  // embedding models are saved with one
  test::write_byte_tokenizer(tokenizer);
  for (const auto& file : fs::directory_iterator(tokenizer.path())) fs::copy(file.path(), dir / file.path().filename());
}

/// Items of 2 to 20 tokens a sequence. Some items have one label: the last token, or the first one of the second half, whose row
/// is the last one of the first half. One item has none.
encode::EncodedItem item_of(const config::Stage& stage, int number) {
  encode::EncodedItem item;
  const int sequences = stage.sequences > 0 ? stage.sequences : 2 + number % 3;
  for (int s = 0; s < sequences; ++s) {
    encode::EncodedSequence& sequence = item.sequences.emplace_back();
    const int length = 2 + (number * 7 + s * 5) % 19;
    for (int t = 0; t < length; ++t)
      sequence.ids.push_back(static_cast<std::int32_t>(
          random(static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(s)) %
          kVocabulary));
    if (!stage.token_labels) continue;
    const bool few = number % 4 == 1, middle = number % 4 == 3, none = number == 6 && !stage.has_pairs();
    const int first = none ? 0 : few ? length - 1 : middle ? (length + 1) / 2 : length / 3;
    sequence.learn(first, none || middle ? first + 1 : length);
  }
  if (stage.sample == config::SampleKind::feedback)
    item.tags.emplace_back(encode::kFeedbackTag, number % 3 != 0 ? "true" : "false");
  if (stage.sample == config::SampleKind::sequence_label) item.tags.emplace_back(encode::kLabelTag, std::to_string(number % 3));
  if (stage.sample == config::SampleKind::texts) item.tags.emplace_back(encode::kPositivesTag, "1");
  item.source_index = number;
  return item;
}

void write_pack(const fs::path& path, const config::Stage& stage) {
  pack::PackAttributes attributes;
  attributes.tokenizer_hash = attributes.template_hash = attributes.template_name = "grid";
  attributes.stage = stage.name;
  attributes.vocab_size = kVocabulary;
  attributes.cutoff_len = 32;
  attributes.sources = {{"grid", "grid"}};
  attributes.varying_sequences = stage.sequences == 0;
  const auto self = comm::make_self_communicator();
  pack::PackBuilder(*self, path, attributes).build(1, [&](std::size_t, pack::PackSink& sink) {
    for (int i = 0; i < kItems; ++i) {
      sink.count(0, 1, 0, 0);
      sink.add(item_of(stage, i));
    }
  });
}

}  // namespace

struct Files::Folder {
  test::TempDir dir;
};

Files::Files(comm::Communicator& world) : world_(world) {
  if (const char* kept = std::getenv("QFT_GRID_FILES")) {
    root_ = kept;
    return;
  }
  if (world.rank() == 0) folder_ = std::make_unique<Folder>();
  root_ = comm::broadcast_string(world, folder_ ? folder_->dir.path().string() : "");
}

Files::Files(comm::Communicator& comm, const Files& others) : world_(comm), root_(others.root_) {}

Files::~Files() = default;

fs::path Files::model(const ModelRow& row) {
  const fs::path dir = root_ / hash_hex(std::string(row.name));
  comm::agreed(world_, [&] {
    if (world_.rank() == 0 && !fs::exists(dir)) write_model(dir, row.config);
  });
  return dir;
}

fs::path Files::pack(const config::Stage& stage) {
  const fs::path path = root_ / (std::string(stage.name) + ".h5");
  comm::agreed(world_, [&] {
    if (world_.rank() == 0 && !fs::exists(path)) write_pack(path, stage);
  });
  return path;
}

fs::path Files::oracle(const ModelRow& model, const TaskRow& task) const {
  return root_ / (hash_hex(fmt::format("{}, {}", model.name, task.name)) + ".oracle");
}

fs::path Files::empty_folder() {
  const fs::path dir = root_ / std::to_string(folders_++);
  comm::agreed(world_, [&] {
    if (world_.rank() != 0) return;
    fs::remove_all(dir);
    fs::create_directories(dir);
  });
  return dir;
}

std::map<std::string, std::string> read_files(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[fs::relative(entry.path(), folder).string()] = test::read_bytes(entry.path());
  return files;
}

}  // namespace qft::parallel::grid
