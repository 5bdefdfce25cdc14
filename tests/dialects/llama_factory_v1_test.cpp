// Run files of LLaMA-Factory's version 1: the meaning of each key of its sections, and errors in sections.
#include "dialects/llama_factory_v1.h"

#include <iterator>
#include <regex>

#include "dialect_files.h"
#include "dialects/foreign_keys.h"
#include "test_paths.h"

namespace qft::dialects {
namespace {

constexpr const char* kBase = "model: m\nmodel_class: llm\noutput_dir: o\ntrain_dataset: d.json\n";

RunConfig load_v1(const std::string& more, std::vector<std::string> overrides = {}, Purpose purpose = Purpose::train) {
  return load_text(kBase + more, std::move(overrides), purpose);
}

std::string error_of_v1(const std::string& more, std::vector<std::string> overrides = {}, Purpose purpose = Purpose::train) {
  return error_of_text(kBase + more, std::move(overrides), purpose);
}

TEST(LlamaFactoryV1, PeftConfigLora) {
  const RunConfig c = load_v1(
      "peft_config:\n  name: lora\n  r: 16\n  lora_alpha: 48\n  lora_dropout: 0.2\n  target_modules: [q_proj, v_proj]\n"
      "  use_rslora: true\n  use_dora: true\n  modules_to_save: [lm_head]\n  adapter_name_or_path: a\n  export_size: 3\n"
      "  export_hub_model_id: null\n  export_legacy_format: false\n");
  EXPECT_EQ(c.finetuning.finetuning_type, "lora");
  EXPECT_EQ(c.finetuning.lora_rank, 16);
  EXPECT_EQ(c.finetuning.lora_alpha, 48);
  EXPECT_EQ(c.finetuning.lora_dropout, 0.2);
  EXPECT_EQ(c.finetuning.lora_target, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_TRUE(c.finetuning.use_rslora && c.finetuning.use_dora);
  EXPECT_EQ(c.finetuning.additional_target, std::vector<std::string>{"lm_head"});
  EXPECT_EQ(c.model.adapter_name_or_path, std::vector<std::string>{"a"});
  EXPECT_EQ(c.exporting.export_size, 3);
}

TEST(LlamaFactoryV1, PeftConfigFreeze) {
  const RunConfig c = load_v1(
      "peft_config:\n  name: freeze\n  freeze_trainable_layers: -1\n  freeze_trainable_modules: mlp\n"
      "  freeze_extra_modules: lm_head\n  cast_trainable_params_to_fp32: true\n");
  EXPECT_EQ(c.finetuning.finetuning_type, "freeze");
  EXPECT_EQ(c.finetuning.freeze_trainable_layers, -1);
  EXPECT_EQ(c.finetuning.freeze_trainable_modules, std::vector<std::string>{"mlp"});
  EXPECT_EQ(c.finetuning.freeze_extra_modules, std::vector<std::string>{"lm_head"});
}

TEST(LlamaFactoryV1, DistConfigFsdp2) {
  EXPECT_EQ(load_v1("dist_config: {name: fsdp2, dcp_path: null}\n").parallel.strategy, "zero3");
  EXPECT_EQ(load_v1("dist_config:\n  name: fsdp2\n  reshard_after_forward: false\n").parallel.strategy,
            load_text("strategy: shard_grad_op\n").parallel.strategy);
  const RunConfig c = load_v1("dist_config: {name: fsdp2, offload_params: true, pin_memory: true}\n");
  EXPECT_EQ(c.parallel.offload_param, "cpu");
  EXPECT_EQ(c.parallel.offload_optimizer, "cpu");
  EXPECT_EQ(load_v1("dist_config: {name: fsdp2}\n", {"strategy=ddp"}).parallel.strategy, "ddp");
}

TEST(LlamaFactoryV1, DistConfigDeepspeed) {
  const TempFolder folder;
  const std::string file = folder.write("ds.json", R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}})");
  const RunConfig c = load_v1("dist_config: {name: deepspeed, config_file: " + file + "}\n");
  EXPECT_EQ(c.parallel.strategy, "zero2");
  EXPECT_TRUE(c.training.bf16);
  const std::string fp32 = folder.write("fp32.json", R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": false}})");
  EXPECT_FALSE(load_v1("dist_config: {name: deepspeed, config_file: " + fp32 + "}\n").training.bf16);
}

TEST(LlamaFactoryV1, QuantConfig) {
  const RunConfig c = load_v1(
      "peft_config: {name: lora}\nquant_config:\n  name: bnb\n  quantization_bit: 8\n  quantization_type: fp4\n"
      "  double_quantization: false\n  compute_dtype: bfloat16\n");
  EXPECT_EQ(c.model.quantization_bit, 8);
  EXPECT_EQ(c.model.quantization_type, "fp4");
  EXPECT_FALSE(c.model.double_quantization);
  EXPECT_CONTAINS(notes_of(c), "quant_config.compute_dtype has no effect");
  EXPECT_EQ(load_v1("peft_config: {name: lora}\nquant_config: {name: bnb}\n").model.quantization_bit, 4);
  EXPECT_FALSE(load_v1("peft_config: {name: lora}\nquant_config: {name: auto}\n").model.quantization_bit.has_value());
}

TEST(LlamaFactoryV1, OptimConfigMuon) {
  const RunConfig c = load_v1(
      "optim_config:\n  name: muon\n  lr: 3\n  wd: 0.2\n  momentum: 0.9\n  nesterov: false\n  ns_steps: 6\n"
      "  adamw_betas: [0.8, 0.9]\n  adamw_eps: 1.0e-7\n");
  EXPECT_EQ(c.training.optim, "muon");
  EXPECT_EQ(c.training.weight_decay, 0.2);
  EXPECT_EQ(c.training.optim_args, "momentum=0.9,nesterov=false,ns_steps=6");
  EXPECT_EQ(c.training.adam_beta1, 0.8);
  EXPECT_EQ(c.training.adam_beta2, 0.9);
  EXPECT_EQ(c.training.adam_epsilon, 1e-7);
  EXPECT_EQ(c.training.learning_rate, 1e-4);
  const RunConfig d = load_v1("optim_config: {name: muon}\n");
  EXPECT_EQ(d.training.weight_decay, 0.1);
  EXPECT_EQ(d.training.adam_beta2, 0.95);
}

TEST(LlamaFactoryV1, DefaultsAreVersionOnes) {
  const RunConfig c = load_v1("");
  EXPECT_EQ(c.finetuning.finetuning_type, "full");
  EXPECT_EQ(c.training.learning_rate, 1e-4);
  EXPECT_EQ(c.training.weight_decay, 0.01);
  EXPECT_EQ(c.training.lr_scheduler_type, "constant");
  EXPECT_EQ(c.training.per_device_train_batch_size, 1);
  EXPECT_EQ(c.training.logging_steps, 1);
  EXPECT_EQ(c.training.save_strategy, "no");
  EXPECT_TRUE(c.training.bf16 && c.training.dataloader_drop_last);
  EXPECT_EQ(c.data.enable_thinking, false);
  EXPECT_CONTAINS(
      notes_of(c),
      " is a key of LLaMA-Factory's version 1, so that version's defaults apply: finetuning_type: full, weight_decay: 0.01, learning_rate: 1e-4");
  EXPECT_FALSE(c.is_given("learning_rate"));
  const RunConfig lora = load_v1("peft_config: {name: lora, r: 64}\n");
  EXPECT_EQ(lora.finetuning.lora_alpha, 16);
  EXPECT_EQ(lora.finetuning.lora_dropout, 0.05);
  const RunConfig given = load_v1("learning_rate: 1e-3\nsave_steps: 5\nmicro_batch_size: 3\n", {"fp16=true", "weight_decay=0"});
  EXPECT_EQ(given.training.learning_rate, 1e-3);
  EXPECT_EQ(given.training.save_strategy, "steps");
  EXPECT_EQ(given.training.per_device_train_batch_size, 3);
  EXPECT_EQ(given.training.weight_decay, 0.0);
  EXPECT_FALSE(given.training.bf16);
}

// Every default in the table is a valid value of its key and differs from the older format's default.
TEST(LlamaFactoryV1, DefaultsDifferFromTheOlderFormats) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Translation::Default& row : v1_defaults()) all.emplace_back(row.key, row.value);
  for (const auto& [key, value] : all) {
    const std::string set = key + ": " + value + "\n";
    EXPECT_NE(to_json(load_text(set)).at(key), to_json(load_text("")).at(key)) << set;
  }
}

TEST(LlamaFactoryV1, KeysBesideTheSections) {
  const RunConfig c = load_v1(
      "dist_timeout: 60\nsave_epochs: 1\nbatching_strategy: dynamic_padding_free\nbatching_workers: 4\ncp_size: 1\n"
      "mp_shard_size: 2\nsave_ckpt_as_hf: true\nresume_from_checkpoint: auto\nsample_backend: hf\nkernel_config: {name: "
      "liger_kernel}\ninit_config: {name: init_on_meta}\nenable_activation_checkpointing: false\nlr_scheduler_config: null\n");
  EXPECT_EQ(c.training.ddp_timeout, 60);
  EXPECT_EQ(c.training.save_strategy, "epoch");
  EXPECT_EQ(c.data.packing, true);
  EXPECT_EQ(c.training.resume_from_checkpoint, "");
  EXPECT_EQ(c.training.gradient_checkpointing, false);
  ASSERT_EQ(c.world_claims.size(), 1U);
  EXPECT_EQ(c.world_claims[0].value, 2);
  EXPECT_CONTAINS(notes_of(c), "run.yaml:7: batching_strategy: qft packs samples into rows of cutoff_len tokens");
  EXPECT_CONTAINS(notes_of(c), "keys without effect in qft: batching_workers, save_ckpt_as_hf, kernel_config, init_config");
  EXPECT_EQ(load_v1("batching_strategy: padding_free\n").data.packing, false);
  EXPECT_EQ(load_text("model: m\nmodel_class: cls\n").finetuning.stage, "rm");
}

TEST(LlamaFactoryV1, RefusedKeysAreNamedWithTheirLines) {
  const std::pair<const char*, const char*> cases[] = {
      {"cp_mode: ring\n", "run.yaml:5: cp_mode: 'ring' is refused: only ulysses is implemented"},
      {"mp_replicate_size: 2\n", "run.yaml:5: mp_replicate_size: '2' is refused: write strategy: hsdp"},
      {"lr_scheduler_config:\n  name: cosine\n", "run.yaml:5: lr_scheduler_config: a mapping is refused: version 1"},
      {"custom_chat_template: x\n", "run.yaml:5: custom_chat_template: 'x' is refused"},
      {"save_epochs: 0.5\n", "run.yaml:5: save_epochs: '0.5' is refused: qft saves checkpoints at the end of each epoch"},
      {"batching_strategy: x\n", "allowed are normal, padding_free, dynamic_batching and dynamic_padding_free"},
      {"dist_config:\n  name: fsdpturbo\n  ep_size: 2\n",
       "run.yaml:6: dist_config.name: 'fsdpturbo' is refused: fsdp2 and deepspeed are implemented, expert parallelism is not"},
      {"dist_config:\n  name: fsdp2\n\n  dcp_path: x\n", "run.yaml:8: dist_config.dcp_path: 'x' is refused: weights are read"},
      {"dist_config:\n  name: fsdp2\n  config_file: x\n",
       "run.yaml:7: dist_config.config_file: dist_config with name fsdp2 (run.yaml:6) does not have this key: its keys are "
       "reshard_after_forward, offload_params, pin_memory, dcp_path"},
      {"dist_config:\n  name: fsdp2\n  offload_params: 3\n",
       "run.yaml:7: dist_config.offload_params: '3' is refused: expected true or"},
      {"peft_config:\n  r: 4\n",
       "run.yaml:6: peft_config.r: peft_config has no name; its name selects the keys: lora and freeze are"},
      {"peft_config:\n  name: oft\n", "run.yaml:6: peft_config.name: 'oft' is refused: lora and freeze are implemented"},
      {"peft_config:\n  name: freeze\n  r: 8\n",
       "run.yaml:7: peft_config.r: peft_config with name freeze (run.yaml:6) does not have this key"},
      {"peft_config: lora\n", "run.yaml:5: peft_config: expected a mapping with a name and its keys, got 'lora'"},
      {"peft_config:\n  name: lora\n  r: x\n", "run.yaml:7: peft_config.r: expected an integer"},
      {"peft_config:\n  name: lora\n  export_hub_model_id: x\n",
       "peft_config.export_hub_model_id: 'x' is refused: qft does not upload"},
      {"optim_config:\n  name: lion\n", "run.yaml:6: optim_config.name: 'lion' is refused: muon is implemented"},
      {"optim_config:\n  name: muon\n  adamw_betas: 3\n",
       "run.yaml:7: optim_config.adamw_betas: expected a list of two numbers, got"},
      {"optim_config:\n  name: muon\n  ns_steps: [1]\n", "run.yaml:7: optim_config.ns_steps: expected one value, got a list"},
      {"quant_config:\n  name: hqq\n", "run.yaml:6: quant_config.name: 'hqq' is refused: bnb and auto are implemented"},
  };
  for (const auto& [text, part] : cases) {
    SCOPED_TRACE(text);
    EXPECT_CONTAINS(error_of_v1(text), part);
  }
}

TEST(LlamaFactoryV1, TheCommandLineReachesIntoSections) {
  const std::string lora = "peft_config:\n  name: lora\n  r: 4\n";
  EXPECT_EQ(load_v1(lora, {"peft_config.r=16"}).finetuning.lora_rank, 16);
  EXPECT_EQ(load_v1("", {R"(--peft_config={"name": "lora", "r": 16})"}).finetuning.lora_rank, 16);
  EXPECT_EQ(load_v1(lora, {"peft_config=null"}).finetuning.finetuning_type, "full");
  EXPECT_CONTAINS(error_of_v1(lora, {"peft_config.rank=16"}), "command line: peft_config.rank=16: peft_config with name lora");
}

TEST(LlamaFactoryV1, ADatasetFileStandsForItsDatasets) {
  const TempFolder folder;
  const std::string file = folder.write("sft.yaml", "zebra:\n  path: z.json\nant:\n  path: a.json\n");
  const std::string run = "model: m\nmodel_class: llm\noutput_dir: o\ntrain_dataset: " + file + "\n";
  EXPECT_EQ(load_text(run, {}, Purpose::train).data.dataset, (std::vector<std::string>{file + ":zebra", file + ":ant"}));
  EXPECT_CONTAINS(error_of_text("model: m\nmodel_class: llm\noutput_dir: o\ntrain_dataset: d/none.yaml\n", {}, Purpose::train),
                  "there is no file d/none.yaml");
  EXPECT_EQ(load_text("model: m\nmodel_class: llm\ntrain_dataset: d/none.yaml\n", {}, Purpose::plan).data.dataset,
            std::vector<std::string>{"d/none.yaml"});
  const std::string list = folder.write("list.yaml", "- a\n");
  EXPECT_CONTAINS(error_of_text("model: m\nmodel_class: llm\noutput_dir: o\ntrain_dataset: " + list + "\n", {}, Purpose::train),
                  "describes no datasets");
}

// The rows of each name belong to its section and name keys of the table of foreign keys.
TEST(LlamaFactoryV1, TheTablesHoldTogether) {
  for (const V1Plugin& plugin : v1_plugins()) {
    bool known = false;
    for (const V1Section& section : v1_sections()) known |= section.name == plugin.section;
    EXPECT_TRUE(known) << plugin.section;
    EXPECT_NE(find_foreign(plugin.section), nullptr) << plugin.section;
    for_each_key(plugin.tables, [&](std::string_view name, const ForeignKey::Meaning&) {
      EXPECT_TRUE(name.starts_with(std::string(plugin.section) + ".")) << name;
    });
  }
}

// The page and the table have the same keys.
TEST(LlamaFactoryV1, ThePageHasEveryKey) {
  std::ifstream file(test::kSourceDir + "/docs/coming_from.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const ForeignKey& key : foreign_keys()) {
    const bool section = find_foreign(fmt::format("{}.name", key.name)) != nullptr;
    if (key.tool != ForeignKey::Tool::llama_factory_v1 || section) continue;
    EXPECT_CONTAINS(page, fmt::format("`{}`", key.name));
  }
  static const std::regex kNested(R"(`((peft|dist|quant|optim)_config\.\w+)`)");
  for (std::sregex_iterator at(page.begin(), page.end(), kNested), end; at != end; ++at)
    EXPECT_NE(find_foreign(at->str(1)), nullptr) << at->str(1);
}

}  // namespace
}  // namespace qft::dialects
