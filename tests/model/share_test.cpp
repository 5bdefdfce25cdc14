// Matrices that tensor ranks share: what each rank holds of every architecture, for all numbers of ranks that fit and some that
// do not.
#include "qft/model/spec.h"

#include <set>
#include <string>
#include <vector>

#include "config_error.h"
#include "model/architecture.h"
#include "tiny_config.h"
#include <gtest/gtest.h>

namespace qft::model {
namespace {

/// What is built: a method and how its frozen weights are kept.
struct Task {
  std::string name;
  Finetuning method = Finetuning::full;
  AdapterConfig adapter = {};
  Head head = Head::language_model;
  ops::Quantization kind = {};
  bool tied = true;
};

std::vector<Task> tasks() {
  LoraConfig lora, dora;
  lora.rank = 3;
  lora.alpha = 6;
  lora.rslora = true;
  lora.set_targets("q_proj,k_proj,v_proj,o_proj,up_proj,down_proj,in_proj_qkv,in_proj_qkvz,out_proj");
  dora = lora;
  dora.dora = true;
  dora.set_targets("q_proj,k_proj,v_proj,o_proj,in_proj_qkv,in_proj_qkvz,out_proj");
  dora.modules_to_save = {"embed_tokens"};
  OftConfig oft;
  oft.block_size = 16;
  oft.set_targets("q_proj,k_proj,v_proj,o_proj,out_proj");  // o_proj has 8 inputs a head: two heads stay together
  OftConfig shared = oft;
  shared.shared = true;
  return {{"full"},
          {.name = "full, untied", .tied = false},
          {.name = "LoRA", .method = Finetuning::adapter, .adapter = lora},
          {.name = "LoRA on int8", .method = Finetuning::adapter, .adapter = lora, .kind = {ops::QuantFormat::int8}},
          {.name = "DoRA", .method = Finetuning::adapter, .adapter = dora},
          {.name = "OFT", .method = Finetuning::adapter, .adapter = oft},
          {.name = "shared OFT", .method = Finetuning::adapter, .adapter = shared, .head = Head::value},
          {.name = "classifier", .head = Head::classifier(5)}};
}

/// Awkward sizes: 53 rows of the vocabulary, 18 inner columns.
ModelConfig awkward(std::string_view type, std::int64_t heads, std::int64_t kv_heads, bool tied) {
  auto config = base(type);
  const bool hybrid = type.starts_with("qwen3_5") || type == "qwen3_next";
  config.update({{"num_hidden_layers", hybrid ? 4 : 2},
                 {"hidden_size", 16},
                 {"head_dim", 8},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", kv_heads},
                 {"intermediate_size", 18},
                 {"vocab_size", 53},
                 {"tie_word_embeddings", tied},
                 {"linear_num_key_heads", 4},
                 {"linear_num_value_heads", 8},
                 {"linear_key_head_dim", 6},
                 {"linear_value_head_dim", 8}});
  const Architecture& row = architecture_of(std::string(type), "test");
  for (const Bias& bias : {row.qkv, row.o, row.mlp})
    if (bias.key != nullptr) config[bias.key] = true;
  return ModelConfig::parse(config.dump(), "test");
}

ModelSpec spec_shared(const ModelConfig& config, const Task& task, Share share) {
  return ModelSpec::build(config, task.method, task.adapter, WeightStorage::in(task.kind), task.head, {}, share);
}

/// Checks one parameter as all ranks have it.
void expect_covered(const std::vector<const ParamSpec*>& ranks) {
  const ParamSpec& first = *ranks.front();
  std::vector<int> saved(Box::whole(first.shape).elements(), 0);
  std::set<int> slots;
  for (const ParamSpec* p : ranks) {
    ASSERT_EQ(p->name, first.name);
    ASSERT_EQ(p->shape, first.shape);
    ASSERT_EQ(static_cast<std::uint64_t>(p->numel), elements(p->boxes));
    ASSERT_EQ(static_cast<std::uint64_t>(p->numel), Box::whole(p->local_shape).elements());
    ASSERT_EQ(p->largest_shape, first.local_shape) << "rank 0 has most";
    ASSERT_LE(p->numel, first.numel);
    for (const Box& box : p->boxes) ASSERT_TRUE(box.inside(p->shape)) << box.describe();
    std::vector<bool> seen(saved.size());
    for (std::int64_t i = 0; i < p->numel; ++i) {
      const auto index = static_cast<std::size_t>(logical_index(*p, i));
      ASSERT_FALSE(seen.at(index)) << "element " << i;
      seen[index] = true;
      if (p->first_holder) ++saved[index];
    }
    if (p->placement(comm::Axis::tensor) == GradPlacement::sharded) {
      ASSERT_TRUE(p->first_holder && p->slots == 1);
      continue;
    }
    // A sum over ranks: all have the same elements at the same place.
    ASSERT_EQ(p->offset, first.offset);
    ASSERT_EQ(p->numel, first.numel);
    ASSERT_LT(p->slot, p->slots);
    ASSERT_EQ(slots.insert(p->slot).second, p->first_holder);
    for (const ParamSpec* other : ranks) ASSERT_EQ(p->slot == other->slot, p->boxes == other->boxes);
  }
  ASSERT_TRUE(slots.empty() || static_cast<int>(slots.size()) == first.slots);
  for (std::size_t i = 0; i < saved.size(); ++i) ASSERT_EQ(saved[i], 1) << "element " << i;
}

/// Checks that a group's tensors follow each other.
void expect_adjacent(const UnitSpec& unit, const ParamGroup& group, const char* suffix) {
  std::int64_t end = -1;
  for (const LinearSpec& linear : group.linears)
    for (const ParamSpec& p : unit.params) {
      if (p.path != linear.path + suffix) continue;
      ASSERT_TRUE(end < 0 || p.offset == end) << p.name;
      end = p.offset + p.numel;
    }
}

TEST(Share, EveryElementIsCountedOnceAndSumsLieAtTheSamePlace) {
  int built = 0;
  for (const std::string_view type : architectures())
    for (const Task& task : tasks())
      for (const auto& [heads, kv_heads] : {std::pair{6, 6}, {12, 2}}) {
        const ModelConfig config = awkward(type, heads, kv_heads, task.tied);
        for (int ranks = 1; ranks <= 8; ++ranks) {
          SCOPED_TRACE(fmt::format("{}, {}, {} heads over {}, {} ranks", type, task.name, heads, kv_heads, ranks));
          std::vector<ModelSpec> specs;
          if (const std::string why = config_error([&] { specs.push_back(spec_shared(config, task, {0, ranks})); });
              !why.empty()) {
            EXPECT_TRUE(ranks > 1 && mentions(why, std::to_string(ranks) + " ranks cannot share")) << why;
            continue;
          }
          ++built;
          for (int rank = 1; rank < ranks; ++rank) specs.push_back(spec_shared(config, task, {rank, ranks}));
          const ModelSpec whole = spec_shared(config, task, {});
          for (std::size_t u = 0; u < specs[0].units.size(); ++u) {
            const UnitSpec& first = specs[0].units[u];
            for (const ModelSpec& spec : specs) {
              ASSERT_EQ(spec.units[u].frozen_numel, first.frozen_numel);
              ASSERT_EQ(spec.units[u].trainable_numel, first.trainable_numel);
              ASSERT_EQ(spec.units[u].quantized_numel, first.quantized_numel);
              ASSERT_EQ(spec.units[u].params.size(), first.params.size());
              if (first.layer >= 0)
                for (const SubLayerSpec& sublayer : spec.layers[static_cast<std::size_t>(first.layer)])
                  for (const ParamGroup* group : sublayer.linears())
                    for (const char* suffix : {".weight", ".bias", kLoraA, kLoraB})
                      expect_adjacent(spec.units[u], *group, suffix);
            }
            for (std::size_t i = 0; i < first.params.size(); ++i) {
              SCOPED_TRACE(first.params[i].path);
              std::vector<const ParamSpec*> of_ranks;
              for (const ModelSpec& spec : specs) of_ranks.push_back(&spec.units[u].params[i]);
              for (const ParamSpec* p : of_ranks) ASSERT_EQ(p->whole_offset, whole.units[u].params[i].offset);
              expect_covered(of_ranks);
              if (testing::Test::HasFatalFailure()) return;
            }
          }
          EXPECT_EQ(specs.back().num_params(false), whole.num_params(false));
        }
      }
  EXPECT_GT(built, 300);
}

TEST(Share, SaysWhatItsSizesAre) {
  const ModelConfig config = awkward("qwen3", 12, 2, true);
  const Task lora = tasks()[2];
  const auto param = [](const ModelSpec& spec, const std::string& path) -> const ParamSpec& {
    for (const ParamSpec& p : spec.units[1].params)
      if (p.path == path) return p;
    throw std::runtime_error(path);
  };
  // Of 12 query heads, ranks 0 to 3 have 3 each, and two of them hold a key head.
  const ModelSpec third = spec_shared(config, lora, {2, 4});
  const SubLayerSpec& attention = third.layers[0][0];
  EXPECT_EQ(attention.heads.heads, (Extent{6, 3}));
  EXPECT_EQ(attention.heads.key_heads, (Extent{1, 1}));
  EXPECT_TRUE(attention.heads.holders == 2 && attention.heads.holder == 0);
  const ParamGroup& qkv = *attention.linears().front();
  EXPECT_EQ(qkv.out(), (3 + 1 + 1) * 8);
  EXPECT_EQ(qkv.linears[0].rows.pieces, (std::vector<Extent>{{48, 24}}));
  EXPECT_EQ(qkv.lora[1].row0, 24);
  EXPECT_EQ(qkv.lora[1].rows, 8);
  EXPECT_EQ(attention.saved[0].columns, qkv.out());
  const ParamSpec& k = param(third, "self_attn.k_proj.weight");
  EXPECT_EQ(k.boxes, (std::vector<Box>{{{8, 0}, {8, 16}}}));
  EXPECT_TRUE(k.slot == 1 && k.slots == 2 && k.first_holder && k.placement(comm::Axis::tensor) == GradPlacement::partial);
  EXPECT_EQ(param(third, "self_attn.o_proj.lora_A.weight").boxes, (std::vector<Box>{{{0, 48}, {3, 24}}}));
  EXPECT_EQ(param(third, "self_attn.o_proj.lora_A.weight").local_shape, (Shape{3, 24}));
  EXPECT_EQ(third.vocabulary, (Extent{27, 13}));
  EXPECT_EQ(third.layers[0][1].linears().front()->linears[0].rows.pieces, (std::vector<Extent>{{10, 4}}));
  // A delta net's fused rows are three pieces: 2 of 4 key heads of 6, then 4 of 8 value heads of 8.
  const ModelSpec second = spec_shared(awkward("qwen3_5", 6, 6, true), lora, {1, 2});
  const std::vector<Box> pieces{{{12, 0}, {12, 16}}, {{36, 0}, {12, 16}}, {{80, 0}, {32, 16}}};
  EXPECT_EQ(param(second, "linear_attn.in_proj_qkv.weight").boxes, pieces);
  EXPECT_EQ(param(second, "linear_attn.conv1d.weight").boxes.size(), 3U);
  EXPECT_EQ(param(second, "linear_attn.in_proj_qkv.lora_B.weight").boxes.size(), 3U);
  EXPECT_EQ(logical_index(param(second, "linear_attn.in_proj_qkv.weight"), 12 * 16), 36 * 16);
}

/// The sizes of all ranks' descriptions add up to those of one rank, but for what every rank has.
TEST(Share, SizesOfAllRanksAddUpToTheWhole) {
  const Task task = tasks().front();
  for (const std::string_view type : architectures()) {
    const ModelConfig config = awkward(type, 12, 4, true);
    const ModelSpec whole = spec_shared(config, task, {});
    for (const int ranks : {2, 3, 4})
      for (std::size_t l = 0; l < whole.layers.size(); ++l)
        for (std::size_t i = 0; i < 2; ++i) {
          SCOPED_TRACE(fmt::format("{}, {} ranks, layer {}, sub-layer {}", type, ranks, l, i));
          const SubLayerSpec& all = whole.layers[l][i];
          std::vector<std::int64_t> outs(all.linears().size()), ins(all.linears().size()), scratch(all.scratch.size()),
              saved(all.saved.size());
          for (int rank = 0; rank < ranks; ++rank) {
            const ModelSpec spec = spec_shared(config, task, {rank, ranks});
            const SubLayerSpec& mine = spec.layers[l][i];
            for (std::size_t g = 0; g < outs.size(); ++g) outs[g] += mine.linears()[g]->out(), ins[g] += mine.linears()[g]->in();
            for (std::size_t t = 0; t < scratch.size(); ++t) scratch[t] += mine.scratch[t].columns;
            for (std::size_t t = 0; t < saved.size(); ++t) saved[t] += mine.saved[t].columns;
          }
          const bool experts = all.kind == SubLayerKind::experts;
          for (std::size_t g = 0; g < outs.size(); ++g) {
            const ParamGroup& group = *all.linears()[g];
            const bool rows = group.linears.front().split == Split::rows;
            EXPECT_EQ(outs[g], group.out() * (rows && !experts ? 1 : ranks));
            EXPECT_EQ(ins[g], group.in() * (rows || experts ? ranks : 1));
          }
          for (std::size_t t = 0; t < scratch.size(); ++t) EXPECT_EQ(scratch[t], all.scratch[t].columns * (experts ? ranks : 1));
          for (std::size_t t = 0; t < saved.size(); ++t) {
            const std::int64_t columns = all.saved[t].columns;
            // Not cut: experts, statistics of whole rows, the input of a norm after the sub-layer. A delta net's states are
            // rounded up.
            const bool cut = !experts && columns > 1 && !(all.norm_after && t + 1 == saved.size());
            EXPECT_TRUE(!cut || std::abs(saved[t] - columns) < ranks) << saved[t] << " instead of " << columns;
          }
        }
  }
}

TEST(Share, IsRefusedWithWhatWouldFit) {
  const auto why = [](const ModelConfig& config, const Task& task, int ranks) {
    return config_error([&] { spec_shared(config, task, {0, ranks}); });
  };
  const Task full = tasks().front(), oft = tasks()[5];
  EXPECT_TRUE(oft.name == "OFT");
  const auto qwen3 = [](std::int64_t heads, std::int64_t kv_heads) { return awkward("qwen3", heads, kv_heads, true); };
  EXPECT_EQ(why(qwen3(12, 3), full, 2), "");
  EXPECT_EQ(why(qwen3(12, 2), full, 3),
            "tensor_parallel: 3 ranks cannot share the 12 query heads and 2 key and value heads of model.layers.0.self_attn: set "
            "tensor_parallel to 2 or 4");
  EXPECT_EQ(why(qwen3(6, 6), full, 7),
            "tensor_parallel: 7 ranks cannot share the 6 query heads and 6 key and value heads of model.layers.0.self_attn: set "
            "tensor_parallel to 6");
  EXPECT_EQ(why(awkward("qwen3_5", 6, 6, true), full, 5),
            "tensor_parallel: 5 ranks cannot share the 4 key heads and 8 value heads of model.layers.0.linear_attn: "
            "set tensor_parallel to 4");
  EXPECT_EQ(
      why(qwen3(6, 6), oft, 4),
      "tensor_parallel: 4 ranks cannot share the 6 query heads and 6 key and value heads of model.layers.0.self_attn, 2 key "
      "heads at a time, so in 3 parts (OFT wraps self_attn.o_proj in blocks of 16): set tensor_parallel to 3 (on as many ranks as now: "
      "2)");
  Task gptq{.name = "GPTQ", .kind = {.format = ops::QuantFormat::groups4, .columns = 6, .ordered = true}};
  const std::string ordered = why(qwen3(6, 6), gptq, 2);
  EXPECT_TRUE(mentions(ordered, "o_proj is kept as int4 in groups of 6 in act order") &&
              mentions(ordered, "set tensor_parallel to 1"))
      << ordered;
  gptq.kind.ordered = false;
  EXPECT_EQ(why(qwen3(6, 6), gptq, 2), "");
  auto few = qwen3(12, 4);
  few.intermediate_size = 3;
  EXPECT_TRUE(mentions(why(few, full, 4), "the 3 inner columns of model.layers.0.mlp: set tensor_parallel to 3"));
  few.vocab_size = 2;
  EXPECT_TRUE(mentions(why(few, full, 3), "the 2 rows of the vocabulary: set tensor_parallel to 2"));
}

/// Blocks of 64 numbers are never cut: 16 inputs of a head and 2 heads a key head make a block of o_proj's rows half a key head.
TEST(Share, CutsQuantisedWeightsBetweenBlocks) {
  auto config = base("qwen3");
  config.update({{"hidden_size", 32},
                 {"head_dim", 16},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 4},
                 {"intermediate_size", 320}});
  const ModelConfig model = ModelConfig::parse(config.dump(), "test");
  const Task nf4{.name = "nf4", .kind = {ops::QuantFormat::nf4, true}};
  for (int rank = 0; rank < 2; ++rank) {
    const ModelSpec spec = spec_shared(model, nf4, {rank, 2});
    EXPECT_EQ(spec.layers[0][0].heads.key_heads, (Extent{rank * 2, 2}));
    EXPECT_EQ(spec.layers[0][1].linears()[1]->linears[0].columns.pieces.front(),
              rank == 0 ? (Extent{0, 192}) : (Extent{192, 128}));
  }
  const std::string why = config_error([&] { spec_shared(model, nf4, {0, 3}); });
  EXPECT_TRUE(mentions(why, "2 key heads at a time, so in 2 parts (self_attn.o_proj is kept as nf4 in blocks of 64 numbers)"))
      << why;
  EXPECT_TRUE(mentions(why, "set tensor_parallel to 2, or quantization_bit to 8, with which weights can be cut anywhere")) << why;
  // A key head's 4 query heads of 16 numbers are one block, so no two ranks can share them.
  config["num_key_value_heads"] = 2;
  const std::string of_a_key = config_error([&] { spec_shared(ModelConfig::parse(config.dump(), "test"), nf4, {0, 4}); });
  EXPECT_TRUE(mentions(of_a_key, "4 query heads at a time, so in 1 part for each key head (self_attn.o_proj is kept as nf4"))
      << of_a_key;
  config["intermediate_size"] = 128;
  const std::string columns = config_error([&] { spec_shared(ModelConfig::parse(config.dump(), "test"), nf4, {0, 2}); });
  EXPECT_EQ(columns, "");
  config["intermediate_size"] = 64;
  const std::string few = config_error([&] { spec_shared(ModelConfig::parse(config.dump(), "test"), nf4, {0, 2}); });
  EXPECT_TRUE(mentions(few, "the 64 inner columns of model.layers.0.mlp, 64 columns at a time, so in 1 part (")) << few;
  EXPECT_TRUE(mentions(few, "mlp.down_proj is kept as nf4 in blocks of 64 numbers")) << few;
}

}  // namespace
}  // namespace qft::model
