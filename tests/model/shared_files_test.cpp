// Models that tensor ranks share: what each rank reads from files or draws at the start is its part of the whole.
#include "qft/io/model_files.h"
#include "qft/model/load.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/temp_dir.h"
#include "tiny_config.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace qft::model {
namespace {

/// A model of this type, with LoRA or, trained in full, with a value head.
struct Sharing {
  std::string_view type;
  bool adapter;
};

ModelSpec spec_of(const Sharing& s, Share share) {
  auto config = base(s.type);
  config.update({{"num_hidden_layers", 4},
                 {"hidden_size", 16},
                 {"head_dim", 8},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 2},
                 {"vocab_size", 53}});
  if (s.type == "qwen3_next")
    config.update(
        {{"linear_num_key_heads", 4}, {"linear_num_value_heads", 8}, {"linear_key_head_dim", 4}, {"linear_value_head_dim", 6}});
  LoraConfig lora;
  lora.rank = 3;
  lora.alpha = 6;
  lora.set_targets("all");
  const ModelConfig model = ModelConfig::parse(config.dump(), "test");
  return s.adapter ? ModelSpec::build(model, Finetuning::adapter, lora, {}, Head::language_model, {}, share)
                   : ModelSpec::build(model, Finetuning::full, {}, {}, Head::value, {}, share);
}

void write_model(const ModelSpec& spec, const std::filesystem::path& dir) {
  std::vector<io::TensorSpec> specs;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params)
      if (p.role == Role::base)
        for (const FileTensor& part : p.in_files()) specs.push_back({part.name, DType::f32, part.shape});
  io::SafetensorsWriter writer(io::posix_storage(), dir / "model.safetensors", specs);
  double first = 0;
  for (const io::TensorSpec& s : specs) {
    const double end = first + static_cast<double>(s.elements());
    const at::Tensor values = at::arange(first, end, at::kFloat);
    writer.append(values.data_ptr(), values.nbytes());
    first = end;
  }
  writer.finish();
}

/// The parts of parameters that a rank holds: elements [from, to) of its boxes, as fractions.
using Held = std::map<std::string, Shard>;

Held hold(const ModelSpec& spec, const io::ModelFiles& files, double from, double to, at::ScalarType type) {
  Held held;
  const ParamAccess access = [&](int, const ParamSpec& p) {
    const auto begin = static_cast<std::int64_t>(from * static_cast<double>(p.numel)),
               end = static_cast<std::int64_t>(to * static_cast<double>(p.numel));
    return held.emplace(p.name, Shard{at::empty({end - begin}, type), begin}).first->second;
  };
  load_base_weights(spec, files, access);
  if (spec.adapter.enabled()) init_adapter(spec, 7, access);
  if (spec.head.has_linear()) init_value_head(spec, 7, access);
  return held;
}

/// Adds 1 to `seen` for the parameter's elements that this rank saves.
void count_saved(const ParamSpec& p, std::vector<int>& seen) {
  seen.resize(Box::whole(p.shape).elements());
  for (std::int64_t i = 0; p.first_holder && i < p.numel; ++i) ++seen[static_cast<std::size_t>(logical_index(p, i))];
}

TEST(SharedFiles, EachRankReadsAndDrawsItsPartOfTheWhole) {
  for (const Sharing& s : {Sharing{"qwen2", true}, {"qwen2", false}, {"qwen3_next", true}, {"qwen3_next", false}}) {
    const test::TempDir dir;
    const ModelSpec whole = spec_of(s, {});
    write_model(whole, dir.path());
    const auto files = io::ModelFiles::open(dir.path());
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const Held all = hold(whole, files, 0.0, 1.0, type);
      for (const int n : {2, 4}) {
        std::map<std::string, std::vector<int>> saved;
        for (int r = 0; r < n; ++r) {
          const ModelSpec spec = spec_of(s, {r, n});
          for (const auto& [from, to] : {std::pair{0.0, 1.0}, {0.3, 0.8}}) {
            const Held mine = hold(spec, files, from, to, type);
            EXPECT_EQ(mine.size(), all.size());
            for (const UnitSpec& unit : spec.units)
              for (const ParamSpec& p : unit.params) {
                const Shard& part = mine.at(p.name);
                const at::Tensor got = part.values.to(at::kDouble), want = all.at(p.name).values.to(at::kDouble);
                std::int64_t wrong = 0;
                for (std::int64_t i = 0; i < got.numel(); ++i)
                  wrong += got.data_ptr<double>()[i] != want.data_ptr<double>()[logical_index(p, part.begin + i)] ? 1 : 0;
                EXPECT_EQ(wrong, 0) << s.type << ": " << p.name << " of rank " << r << " of " << n;
                if (from == 0.0) count_saved(p, saved[p.name]);
              }
          }
        }
        for (const auto& [name, times] : saved)
          EXPECT_EQ(std::count(times.begin(), times.end(), 1), std::ssize(times)) << name << ", " << n << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace qft::model
