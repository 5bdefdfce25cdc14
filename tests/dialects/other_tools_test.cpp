// Run files and command lines of other tools.
#include "qft/config/optimizers.h"
#include "qft/config/start.h"

#include <set>

#include "dialect_files.h"

namespace qft::dialects {
namespace {

const std::vector<std::string> kSwift = {"--model=m", "--dataset=d"};

RunConfig load_typed(std::vector<std::string> overrides, Purpose purpose = Purpose::train) {
  overrides.insert(overrides.begin(), kSwift.begin(), kSwift.end());
  return load({}, overrides, purpose);
}

std::string error_of_typed(std::vector<std::string> overrides, Purpose purpose = Purpose::train) {
  return error_of([&] { load({}, overrides, purpose); });
}

TEST(OtherTools, NamesOfSwiftMeanOurKeys) {
  const RunConfig c =
      load_typed({"--tuner_type=lora", "--torch_dtype=bfloat16", "--target_modules=all-linear", "--max_length=512",
                  "--system=Be kind.", "--dataset_num_proc=4", "--lora_rank=4", "--deepspeed=default-zero3",
                  "--save_total_limit=-1", "--adapters=a", "--loss_scale=last_round", "--padding_free=true"});
  EXPECT_EQ(c.model.model_name_or_path, "m");
  EXPECT_EQ(c.finetuning.finetuning_type, "lora");
  EXPECT_TRUE(c.training.bf16);
  EXPECT_EQ(c.finetuning.lora_target, std::vector<std::string>{"all"});
  EXPECT_EQ(c.data.cutoff_len, 512);
  EXPECT_EQ(c.data.default_system, "Be kind.");
  EXPECT_EQ(c.data.preprocessing_num_workers, 4);
  EXPECT_EQ(c.parallel.strategy, "zero3");
  EXPECT_FALSE(c.training.save_total_limit.has_value());
  EXPECT_EQ(c.model.adapter_name_or_path, std::vector<std::string>{"a"});
  EXPECT_TRUE(c.data.mask_history);
  const RunConfig weighted = load_typed({"--loss_scale=all+hermes", "--is_binary_loss_scale=false", "--loss_type=loss_scale"});
  EXPECT_TRUE(weighted.data.train_on_prompt && !weighted.data.mask_history);
  EXPECT_EQ(config::parse_loss_scale(weighted.data.loss_scale).schemes, "hermes");
}

TEST(OtherTools, NamesOfScriptsMeanOurKeys) {
  const RunConfig c = load_text(
      "base_model: m\ntrain_file_dir: d\nvalidation_file_dir: e\nlora_r: 4\nmicro_batch_size: 2\nnum_epochs: 2\n"
      "gradient_clip_val: 0.5\nmodel_max_length: 99\nuse_peft: true\nlr: 1e-3\ndtype: float16\noutput_dir: o\nlora_alpha: 3\n",
      {}, Purpose::train);
  EXPECT_EQ(c.model.model_name_or_path, "m");
  EXPECT_EQ(c.data.dataset, std::vector<std::string>{"d"});
  EXPECT_EQ(c.data.eval_dataset, std::vector<std::string>{"e"});
  EXPECT_EQ(c.finetuning.lora_rank, 4);
  EXPECT_EQ(c.training.per_device_train_batch_size, 2);
  EXPECT_EQ(c.training.num_train_epochs, 2);
  EXPECT_EQ(c.training.max_grad_norm, 0.5);
  EXPECT_EQ(c.data.cutoff_len, 99);
  EXPECT_EQ(c.training.learning_rate, 1e-3);
  EXPECT_TRUE(c.training.fp16);
}

// The vision tower is not trained: a run that asks for it would train less than requested.
TEST(OtherTools, AVisionTowerThatIsToTrainIsRefused) {
  for (const std::string key : {"freeze_vit", "freeze_aligner", "freeze_vision_tower", "freeze_multi_modal_projector"}) {
    EXPECT_CONTAINS(error_of_typed({"--" + key + "=false"}), "leaves the vision tower and its projector unchanged");
    EXPECT_CONTAINS(error_of_typed({"--" + key + "=no"}), key);
    for (const char* frozen : {"true", "yes", "null"})
      EXPECT_EQ(load_typed({"--" + key + "=" + frozen}).data.cutoff_len > 0, true);
  }
  EXPECT_CONTAINS(error_of_typed({"--train_mm_proj_only=true"}), "qft trains only the text model");
}

// Command lines for TRL and MedicalGPT, and files of axolotl and torchtune.
TEST(OtherTools, CommandsOfTrlAreUnderstood) {
  const RunConfig c = load(
      {},
      std::vector<std::string>{"--model_name_or_path=Qwen/Qwen2.5-0.5B", "--dataset_name=data/capybara", "--learning_rate=2.0e-5",
                               "--num_train_epochs=1", "--packing=true", "--use_peft=true", "--lora_r=32", "--lora_alpha=16",
                               "--eos_token=<|im_end|>", "--assistant_only_loss=true", "--attn_implementation=flash_attention_2",
                               "--dataset_num_proc=8", "--torch_dtype=bfloat16", "--output_dir=o"},
      Purpose::train);
  EXPECT_EQ(c.data.dataset, std::vector<std::string>{"data/capybara"});
  EXPECT_EQ(c.finetuning.lora_rank, 32);
  EXPECT_EQ(c.training.learning_rate, 2e-5);
  EXPECT_TRUE(c.training.bf16);
  EXPECT_FALSE(has_note(c, "ms-swift"));
  const std::vector<std::string> full = {"--model_name_or_path=m", "--dataset_name=d", "--output_dir=o"};
  EXPECT_TRUE(has_note(load({}, full, Purpose::train),
                       "finetuning_type is not given: using lora, but tools with the key dataset_name train all weights"));
  EXPECT_CONTAINS(error_of_typed({"--model_name_or_path=m", "--dataset_name=d", "--use_peft=true", "--max_length=512"}),
                  "'max_length' has two meanings");
}

TEST(OtherTools, CommandsOfMedicalGptAreUnderstood) {
  const RunConfig c =
      load({},
           std::vector<std::string>{"--model_name_or_path=m", "--train_file_dir=./data/finetune",
                                    "--validation_file_dir=./data/valid", "--do_train=true", "--do_eval=true", "--use_peft=True",
                                    "--model_max_length=4096", "--template_name=qwen", "--target_modules=all", "--lora_rank=8",
                                    "--torch_dtype=bfloat16", "--flash_attn=True", "--device_map=auto",
                                    "--ddp_find_unused_parameters=False", "--cache_dir=./cache", "--output_dir=o"},
           Purpose::train);
  EXPECT_EQ(c.data.cutoff_len, 4096);
  EXPECT_EQ(c.data.template_name, "qwen");
  EXPECT_EQ(c.finetuning.lora_target, std::vector<std::string>{"all"});
  EXPECT_FALSE(has_note(c, "this run uses ms-swift's keys"));
}

TEST(OtherTools, FilesOfAxolotlAreAnswered) {
  const std::string text =
      "base_model: m\nmodel_type: AutoModelForCausalLM\nload_in_8bit: false\nload_in_4bit: false\nstrict: false\ndataset: "
      "d\nval_set_size: 0.1\n"
      "output_dir: o\nsequence_len: 512\nsample_packing: true\npad_to_sequence_len: true\nadapter: lora\nlora_r: 16\nlora_alpha: "
      "32\n"
      "lora_target_linear: true\nwandb_project:\ngradient_accumulation_steps: 2\nmicro_batch_size: 2\nnum_epochs: 1\noptimizer: "
      "adamw_torch\n"
      "lr_scheduler: cosine\nlearning_rate: 0.0002\ntrain_on_inputs: false\ngroup_by_length: false\nbf16: true\nflash_attention: "
      "true\n"
      "saves_per_epoch: 1\nspecial_tokens: {}\nweight_decay: 0.0\n";
  const RunConfig c = load_text(text, {}, Purpose::train);
  EXPECT_EQ(c.data.cutoff_len, 512);
  EXPECT_EQ(c.finetuning.lora_target, std::vector<std::string>{"all"});
  EXPECT_EQ(c.training.save_strategy, "epoch");
  EXPECT_FALSE(has_note(c, "ms-swift"));
  EXPECT_CONTAINS(error_of_text(text + "evals_per_epoch: 4\n", {}, Purpose::train),
                  "eval_steps: 1 / (evals_per_epoch x num_epochs)");
  EXPECT_CONTAINS(error_of_text(text + "datasets:\n- path: d\n  type: alpaca\n", {}, Purpose::train),
                  "datasets: a list is refused: name files or folders in dataset");
  EXPECT_CONTAINS(error_of_text(text + "chat_template: chatml\n", {}, Purpose::train), "name one of qft's templates in template");
}

TEST(OtherTools, FullFineTuningOfAxolotlIsNotTakenForSwift) {
  const std::string text = "base_model: m\ndataset: d\noutput_dir: o\nmicro_batch_size: 2\neval_batch_size: 1\n";
  const RunConfig c = load_text(text, {}, Purpose::train);
  EXPECT_EQ(c.training.per_device_eval_batch_size, 1);
  EXPECT_FALSE(has_note(c, "ms-swift"));
  EXPECT_TRUE(has_note(c, "finetuning_type is not given: using lora, but tools with the key base_model train all weights"));
  EXPECT_CONTAINS(error_of_text(text + "max_length: 512\n", {}, Purpose::train), "'max_length' has two meanings");
}

// Only names that no other tool has identify a file of ms-swift.
TEST(OtherTools, NamesOfSeveralToolsDoNotSpeakForSwift) {
  for (const char* name : {"eval_batch_size",
                           "verbose",
                           "stream",
                           "callbacks",
                           "metric",
                           "group_size",
                           "safe_serialization",
                           "max_shard_size",
                           "tensor_parallel_size",
                           "gpu_memory_utilization",
                           "max_model_len",
                           "vllm_max_model_len",
                           "lora_bias",
                           "init_lora_weights",
                           "use_ray",
                           "use_liger",
                           "use_flash_attn",
                           "min_lr",
                           "sequence_parallel_size",
                           "merge_lora",
                           "padding_side",
                           "new_special_tokens",
                           "bnb_4bit_quant_type",
                           "router_aux_loss_coef",
                           "num_labels",
                           "logprobs",
                           "tensor_model_parallel_size"}) {
    SCOPED_TRACE(name);
    const std::string text = std::string(name) + ": null\nmax_length: 512\n";
    EXPECT_CONTAINS(error_of_text(text, {}, Purpose::train), "'max_length' has two meanings");
  }
}

TEST(OtherTools, FilesOfTorchtuneAreAnswered) {
  const std::string common = "model_name_or_path: m\ndataset: d\noutput_dir: o\n";
  const RunConfig c = load_text(
      common +
          "clip_grad_norm: null\nenable_activation_checkpointing: true\nlog_every_n_steps: 1\nshuffle: false\ndtype: bf16\n"
          "device: cuda\nepochs: 2\n",
      {}, Purpose::train);
  EXPECT_EQ(c.training.max_grad_norm, 0);
  EXPECT_TRUE(c.recompute());
  EXPECT_TRUE(c.finetuning.disable_shuffling);
  EXPECT_EQ(c.training.num_train_epochs, 2);
  EXPECT_CONTAINS(error_of_text(common + "checkpointer:\n  _component_: x\n", {}, Purpose::train),
                  "write model_name_or_path: the folder of the model");
  EXPECT_CONTAINS(error_of_text(common + "optimizer:\n  _component_: torch.optim.AdamW\n", {}, Purpose::train),
                  "optimizer: expected one of adamw_torch, ");
}

TEST(OtherTools, OptimizerTakesWhatOptimTakes) {
  for (const config::OptimizerNames& row : config::kOptimizers)
    for (const char* choice : row.optim) EXPECT_EQ(load_text(fmt::format("optimizer: {}\n", choice)).training.optim, choice);
}

TEST(OtherTools, NumberOfGpusIsHeldAgainstTheRanks) {
  const RunConfig c = load_text("num_gpus: 8\n");
  EXPECT_NO_THROW(c.check_world(8));
  EXPECT_CONTAINS(error_of([&] { c.check_world(1); }),
                  "run.yaml:1: num_gpus is 8, but the job has 1 rank: start with mpirun -np 8");
}

TEST(OtherTools, ListsKeepTheirItems) {
  const RunConfig c = load_typed({R"(--target_modules=["q_proj","k_proj"])", R"(--val_dataset=["a#5","b"])"});
  EXPECT_EQ(c.finetuning.lora_target, (std::vector<std::string>{"q_proj", "k_proj"}));
  EXPECT_EQ(c.data.eval_dataset, (std::vector<std::string>{"a#5", "b"}));
  const std::string expression = R"(model\.layers\.[0-3]\..*(q|v)_proj)";
  EXPECT_EQ(load_typed({"--target_regex=" + expression}).finetuning.lora_target, std::vector<std::string>{expression});
  EXPECT_EQ(load_typed({"--target_regex=null"}).finetuning.lora_target, std::vector<std::string>{"all"});
}

TEST(OtherTools, EvaluationFollowsTheSavesWhereSwiftAsksForIt) {
  const RunConfig c = load_typed({"--split_dataset_ratio=0.01", "--save_steps=50"});
  EXPECT_EQ(c.data.val_size, 0.01);
  EXPECT_EQ(c.training.eval_strategy, "steps");
  EXPECT_EQ(c.training.eval_steps, 50);
  EXPECT_EQ(load_typed({"--val_dataset=e", "--save_strategy=epoch"}).training.eval_strategy, "epoch");
  const RunConfig none = load_typed({"--split_dataset_ratio=0.01", "--eval_strategy=no"});
  EXPECT_EQ(none.data.val_size, 0);
  EXPECT_TRUE(has_note(none, "nothing is held out"));
  EXPECT_EQ(load_text("val_size: 0.01\ndataset: d\n").training.eval_strategy, "no");
}

TEST(OtherTools, NothingIsHeldOutWhereSwiftHasAValidationSet) {
  const RunConfig c = load_typed({"--val_dataset=e", "--split_dataset_ratio=0.1"});
  EXPECT_EQ(c.data.val_size, 0);
  EXPECT_EQ(c.data.eval_dataset, std::vector<std::string>{"e"});
  EXPECT_EQ(c.training.eval_strategy, "steps");
  EXPECT_TRUE(has_note(c, "--split_dataset_ratio=0.1 has no effect: evaluation uses command line: --val_dataset=e"));
  EXPECT_EQ(load_typed({"--val_dataset=null", "--split_dataset_ratio=0.1"}).data.val_size, 0.1);
  EXPECT_CONTAINS(error_of_text("dataset: d\nval_dataset: e\nval_size: 0.1\n"), "exclude each other");
}

TEST(OtherTools, MaxEpochsIsABoundBesideTheEpochs) {
  EXPECT_EQ(load_typed({"--max_epochs=2"}).training.num_train_epochs, 2);
  const RunConfig less = load_typed({"--max_epochs=2", "--num_train_epochs=5"});
  EXPECT_EQ(less.training.num_train_epochs, 2);
  EXPECT_TRUE(has_note(less, "--max_epochs=2: the run and its learning-rate schedule have 2 epochs instead of 5"));
  EXPECT_EQ(load_typed({"--max_epochs=9", "--num_train_epochs=5"}).training.num_train_epochs, 5);
  EXPECT_EQ(load_typed({"--max_epochs=null"}).training.num_train_epochs, 3);
  EXPECT_EQ(load_typed({"--max_epochs=1", "--num_train_epochs=null"}).training.num_train_epochs, 1);
  EXPECT_EQ(load_text("num_train_epochs:\nmax_epochs: 1\n").training.num_train_epochs, 1);
  EXPECT_CONTAINS(error_of_typed({"--max_epochs=9"}), "'max_epochs' has two meanings: in ms-swift it is a limit");
  EXPECT_CONTAINS(error_of_typed({"--max_epochs=9", "--num_train_epochs=null"}), "'max_epochs' has two meanings");
  EXPECT_CONTAINS(error_of_typed({"--max_epochs=2", "--max_steps=100"}),
                  "--max_epochs=2 and command line: --max_steps=100 end the run at different steps");
  EXPECT_CONTAINS(error_of_typed({"--max_epochs=some"}), "expected a number of epochs above 0, got 'some'");
}

TEST(OtherTools, SwiftShufflesTwice) {
  const auto keeps_order = [](std::vector<std::string> typed) {
    return load_typed(std::move(typed)).finetuning.disable_shuffling;
  };
  EXPECT_FALSE(keeps_order({"--dataset_shuffle=true", "--train_dataloader_shuffle=true"}));
  EXPECT_FALSE(keeps_order({"--dataset_shuffle=false"}));
  EXPECT_TRUE(has_note(load_typed({"--dataset_shuffle=false"}), "each epoch still has a new order"));
  EXPECT_TRUE(keeps_order({"--dataset_shuffle=false", "--train_dataloader_shuffle=false"}));
  EXPECT_TRUE(keeps_order({"--dataset_shuffle=false", "--streaming=true", "--max_steps=9"}));
  EXPECT_FALSE(keeps_order({"--train_dataloader_shuffle=false", "--streaming=true", "--max_steps=9"}));
  EXPECT_CONTAINS(error_of_typed({"--train_dataloader_shuffle=false"}), "shuffles once and uses this order in all epochs");
  EXPECT_CONTAINS(error_of_typed({"--dataset_shuffle=maybe"}), "expected true or false, got 'maybe'");
}

TEST(OtherTools, StoppingEarlyKeepsTheBest) {
  const RunConfig c = load_typed({"--early_stop_interval=3", "--split_dataset_ratio=0.1"});
  EXPECT_EQ(c.finetuning.early_stopping_steps, 3);
  EXPECT_TRUE(c.training.load_best_model_at_end);
  EXPECT_TRUE(has_note(c, "load_best_model_at_end is not given: using 'true', because of command line: --early_stop_interval=3"));
}

TEST(OtherTools, DefaultsThatDifferAreSaid) {
  const RunConfig c = load_typed({"--learning_rate=1e-4"});
  EXPECT_EQ(c.training.output_dir, "output/m");
  EXPECT_TRUE(has_note(c, "weight_decay (0.1)"));
  EXPECT_FALSE(has_note(c, "learning_rate (1e-4"));
  EXPECT_TRUE(has_note(c, "compute_dtype (the type of the model's weights)"));
  EXPECT_TRUE(has_note(c, "truncation_strategy (delete: longer samples are dropped; here they are cut)"));
  const RunConfig named = load_typed({"--torch_dtype=bfloat16", "--truncation_strategy=right"});
  EXPECT_FALSE(has_note(named, "compute_dtype ("));
  EXPECT_FALSE(has_note(named, "truncation_strategy ("));
  EXPECT_TRUE(load_text("model_name_or_path: m\ndataset: d\noutput_dir: o\n", {}, Purpose::train).notes.empty());
}

TEST(OtherTools, TwoMeaningsAreToldApartOrRefused) {
  const std::string common = "model_name_or_path: m\ndataset: d\noutput_dir: o\n";
  EXPECT_CONTAINS(error_of_text(common + "max_length: 2048\n", {}, Purpose::train),
                  "run.yaml:4: max_length: 'max_length' has two meanings: ");
  EXPECT_CONTAINS(error_of_text(common + "system: Be kind.\n", {}, Purpose::train), "write default_system for the data");
  EXPECT_CONTAINS(error_of_text(common + "batch_size: 8\n", {}, Purpose::train), "has two meanings");
  EXPECT_CONTAINS(error_of_text(common + "model_name: x\n", {}, Purpose::train), "write model_name_or_path for the model");
  // Together with cutoff_len, and in qft generate, max_length can only mean generation.
  const RunConfig both = load_text(common + "max_length: 64\ncutoff_len: 32\n", {}, Purpose::train);
  EXPECT_EQ(both.generate.max_length, 64);
  EXPECT_EQ(both.data.cutoff_len, 32);
  EXPECT_EQ(load_text(common + "max_length: 64\nsystem: S\n", {}, Purpose::generate).generate.system, "S");
  EXPECT_EQ(load_text(common + "batch_size: 8\nmicro_batch_size: 2\n", {}, Purpose::train).training.global_batch_size, 8);
  EXPECT_EQ(load_typed({"--batch_size=4"}).training.per_device_train_batch_size, 4);
  EXPECT_TRUE(has_note(load_typed({"--model_name=bot"}), "which does not change texts"));
}

TEST(OtherTools, TwoNamesOfAKeyMustAgree) {
  EXPECT_CONTAINS(error_of_text("lora_r: 4\nlora_rank: 8\n"),
                  "run.yaml:2: lora_rank is '8', but run.yaml:1: lora_r is '4', and both set lora_rank: keep one");
  EXPECT_CONTAINS(error_of_typed({"--torch_dtype=bfloat16", "--bf16=false"}), "both set bf16");
  EXPECT_EQ(load_text("lora_r: 4\nlora_rank: 4\n").finetuning.lora_rank, 4);
  EXPECT_EQ(load_text("learning_rate: 1e-4\nlr: 0.0001\n").training.learning_rate, 1e-4);
  // The command line overrides the file under any name.
  EXPECT_EQ(load_text("lora_rank: 8\n", {"lora_r=4"}).finetuning.lora_rank, 4);
  EXPECT_EQ(load_text("lora_rank: 8\n", {"lora_rank=4", "lora_rank=2"}).finetuning.lora_rank, 2);
}

TEST(OtherTools, MethodsOfSwiftsRlhfAreStagesHere) {
  for (const auto& [type, stage] :
       {std::pair{"dpo", "dpo"}, {"kto", "kto"}, {"rm", "rm"}, {"orpo", "dpo"}, {"simpo", "dpo"}, {"cpo", "dpo"}}) {
    const RunConfig c = load_typed({fmt::format("--rlhf_type={}", type)});
    EXPECT_EQ(c.finetuning.stage, stage) << type;
    const std::string_view name(type);
    const bool names_loss = name == "orpo" || name == "simpo" || name == "cpo";
    EXPECT_EQ(c.finetuning.pref_loss, names_loss ? type : "sigmoid") << type;
    EXPECT_EQ(c.finetuning.rpo_alpha, name == "simpo" || name == "cpo" ? 1.0 : 0.0) << type;
    EXPECT_EQ(c.finetuning.pref_beta, name == "simpo" ? 2.0 : 0.1) << type;
  }
}

TEST(OtherTools, KeysOfSwiftsRlhfAreThoseOfLosses) {
  const auto cpo =
      load_typed({"--rlhf_type=cpo", "--loss_type=sigmoid", "--beta=0.3", "--cpo_alpha=0.5", "--label_smoothing=0.1"});
  EXPECT_EQ(cpo.finetuning.pref_loss, "cpo");
  EXPECT_EQ(cpo.finetuning.pref_beta, 0.3);
  EXPECT_EQ(cpo.finetuning.rpo_alpha, 0.5);
  EXPECT_EQ(cpo.finetuning.dpo_label_smoothing, 0.1);
  const auto dpo = load_typed({"--rlhf_type=dpo", "--loss_type=hinge", "--rpo_alpha=0.1", "--ref_model=m", "--ref_adapters=a"});
  EXPECT_EQ(dpo.finetuning.pref_loss, "hinge");
  EXPECT_EQ(dpo.finetuning.rpo_alpha, 0.1);
  EXPECT_EQ(dpo.finetuning.ref_model_adapters, std::vector<std::string>{"a"});
  const auto kto = load_typed({"--rlhf_type=kto", "--loss_type=kto", "--desirable_weight=1.2", "--undesirable_weight=0.8"});
  EXPECT_EQ(kto.finetuning.kto_chosen_weight, 1.2);
  EXPECT_EQ(kto.finetuning.kto_rejected_weight, 0.8);
  EXPECT_CONTAINS(error_of_typed({"--rlhf_type=cpo", "--loss_type=hinge"}), "both set pref_loss");
  EXPECT_CONTAINS(error_of_typed({"--rlhf_type=dpo", "--loss_type=apo_zero"}),
                  "allowed are sigmoid, hinge, ipo, orpo, simpo and cpo");
  const RunConfig a = load_text("base_model: m\ndatasets: []\nrl: ipo\nlabel_smoothing: 0.0\nnoisy_embedding_alpha: 5\n");
  EXPECT_EQ(a.finetuning.stage, "dpo");
  EXPECT_EQ(a.finetuning.pref_loss, "ipo");
  EXPECT_EQ(a.training.neftune_noise_alpha, 5);
  EXPECT_CONTAINS(error_of_text("rl: grpo\n"), "dpo, ipo, orpo, simpo and kto are implemented");
  EXPECT_CONTAINS(error_of_text("min_lr: 1e-6\n"), "lr_scheduler_type: cosine_with_min_lr");
}

TEST(OtherTools, WhatIsTypedForAProgramThatDoesNotReadItIsSaid) {
  EXPECT_CONTAINS(error_of_typed({"--model=m", "--val_dataset=d.jsonl"}, Purpose::generate),
                  "--val_dataset=d.jsonl: qft chat and qft generate read no datasets: use qft generate --input");
  EXPECT_TRUE(has_note(load_typed({"learning_rate=1"}, Purpose::eval), "learning_rate=1 has no effect in this program"));
  EXPECT_FALSE(has_note(load_text("model_name_or_path: m\nlearning_rate: 1\n", {"top_k=1"}, Purpose::generate), "no effect"));
}

TEST(OtherTools, RefusalsSayWhyAndWhatToDo) {
  EXPECT_CONTAINS(error_of_typed({"--tuner_type=adalora"}),
                  "command line: --tuner_type=adalora: 'adalora' is refused: lora and full");
  EXPECT_CONTAINS(error_of_typed({"--quant_bits=4", "--quant_method=awq"}), "expected one of bnb, int8, fp8");
  EXPECT_CONTAINS(error_of_typed({"--task_type=seq_cls"}), "needs num_labels");
  EXPECT_CONTAINS(error_of_typed({"--task_type=prm"}), "'prm' is refused: allowed are causal_lm, seq_cls, embedding");
  EXPECT_CONTAINS(error_of_typed({"--rlhf_type=grpo"}), "dpo, kto, rm, orpo, simpo and cpo are implemented");
  EXPECT_CONTAINS(error_of_text("torch_dtype: int8\n"), "allowed are bfloat16, float16 and float32");
  for (const auto& [word, iterations] : {std::pair{"pissa", -1}, {"pissa_niter_4", 4}}) {
    const config::FinetuningArgs f = load_text(fmt::format("init_weights: {}\n", word)).finetuning;
    EXPECT_TRUE(f.pissa_init);
    EXPECT_EQ(f.pissa_iter, iterations);
  }
  EXPECT_FALSE(load_text("init_weights: true\n").finetuning.pissa_init);
  EXPECT_CONTAINS(error_of_text("init_weights: pissa_niter_x\n"), "expected an integer of at least -1, got 'x'");
  EXPECT_CONTAINS(error_of_text("init_weights: olora\n"), "'olora' is refused: LoRA starts from PEFT's default");
}

TEST(OtherTools, MessagesNameTheKeyAsItWasTyped) {
  EXPECT_CONTAINS(error_of_typed({"--model=m", "--dataset=d", "--split_dataset_ratio=1.5"}),
                  "command line (split_dataset_ratio): val_size: expected a whole number");
  EXPECT_CONTAINS(error_of_text("lora_r: many\n"), "run.yaml:1: lora_r: expected an integer of at least 1, got 'many'");
  EXPECT_CONTAINS(error_of_text("torch_dtype: bfloat16\nfp16: true\n"), "run.yaml:1 (torch_dtype): bf16 and ");
}

// A run with an adapter in its own folder, and a checkpoint below it.
struct EarlierRun {
  TempFolder folder;
  std::string dir = folder.path() + "/run";
  explicit EarlierRun(const std::string& settings) {
    std::filesystem::create_directories(dir + "/checkpoint-2");
    folder.write("run/run.json", R"({"status": "finished", "settings": )" + settings + "}");
  }
};

constexpr const char* kHeldOut =
    R"({"template": "qwen3", "default_system": "Be kind.", "dataset": ["a.json", "b.json"], "val_size": 0.25, "seed": 7,
        "cutoff_len": 99, "bf16": true, "learning_rate": 1.0, "output_dir": "elsewhere", "enable_thinking": true})";

RunConfig load_with(const EarlierRun& run, std::vector<std::string> more, Purpose purpose = Purpose::eval,
                    const char* below = "") {
  more.insert(more.begin(), {"--model=m", "--adapters=" + run.dir + below});
  return load({}, more, purpose);
}

TEST(EarlierRun, LoadDataArgsTakesItsDataAndItsText) {
  const EarlierRun run(kHeldOut);
  for (const char* below : {"", "/", "/checkpoint-2"}) {
    const RunConfig c = load_with(run, {"--load_data_args=true"}, Purpose::eval, below);
    EXPECT_EQ(c.data.dataset, (std::vector<std::string>{"a.json", "b.json"}));
    EXPECT_EQ(c.data.val_size, 0.25);
    EXPECT_EQ(c.training.seed, 7);
    EXPECT_EQ(c.data.cutoff_len, 99);
    EXPECT_EQ(c.data.template_name, "qwen3");
    EXPECT_EQ(c.data.default_system, "Be kind.");
    EXPECT_TRUE(c.training.bf16);
    EXPECT_EQ(c.training.output_dir, "");
    EXPECT_FALSE(c.is_given("enable_thinking"));
    EXPECT_TRUE(has_note(c, "settings taken from " + run.dir + "/run.json: "));
    EXPECT_TRUE(has_note(c, "template 'qwen3'"));
  }
}

TEST(EarlierRun, LoadArgsAloneTakesTheText) {
  const EarlierRun run(kHeldOut);
  const RunConfig c = load_with(run, {}, Purpose::generate);
  EXPECT_EQ(c.data.template_name, "qwen3");
  EXPECT_EQ(c.data.default_system, "Be kind.");
  EXPECT_TRUE(c.data.dataset.empty());
  EXPECT_EQ(c.data.val_size, 0.0);
  EXPECT_EQ(load_with(run, {"--load_args=false"}, Purpose::generate).data.template_name, "");
}

TEST(EarlierRun, DecidesUnderEverySpelling) {
  const EarlierRun run(kHeldOut);
  run.folder.write("base/config.json", "{}");
  run.folder.write("llama.yaml", "model_name_or_path: m\nadapter_name_or_path: " + run.dir + "\n");
  const std::string base = "model_name_or_path=m";
  for (const std::vector<std::string>& typed : {std::vector<std::string>{base, "adapter_name_or_path=" + run.dir},
                                                {base, "--adapter_name_or_path=" + run.dir},
                                                {base, "--adapters=" + run.dir},
                                                {"model_name_or_path=" + run.dir}})
    for (const Purpose purpose : {Purpose::generate, Purpose::eval}) {
      std::vector<std::string> all = typed;
      if (purpose == Purpose::eval) all.emplace_back("eval_dataset=v.json");
      const RunConfig c = load({}, all, purpose);
      EXPECT_EQ(c.data.template_name, "qwen3") << typed.back();
      EXPECT_EQ(c.data.default_system, "Be kind.") << typed.back();
      EXPECT_TRUE(c.training.bf16) << typed.back();
      EXPECT_TRUE(c.data.dataset.empty()) << typed.back();
    }
  EXPECT_EQ(load(run.folder.path() + "/llama.yaml", {}, Purpose::generate).data.template_name, "qwen3");
  const std::vector<std::string> off = {base, "adapter_name_or_path=" + run.dir, "load_args=false"};
  EXPECT_EQ(load({}, off, Purpose::generate).data.template_name, "");
}

TEST(EarlierRun, IsThatOfTheLastAdapter) {
  const EarlierRun first(kHeldOut), last(R"({"template": "alpaca", "quantization_bit": 4})");
  for (const std::string& typed : {"adapter_name_or_path=" + first.dir + "," + last.dir,
                                   "adapter_name_or_path=[\"" + first.dir + "\", \"" + last.dir + "/./checkpoint-2/.\"]"}) {
    const RunConfig c = load({}, std::vector<std::string>{"model_name_or_path=m", typed}, Purpose::generate);
    EXPECT_EQ(c.data.template_name, "alpaca") << typed;
    EXPECT_EQ(c.data.default_system, "") << typed;
    EXPECT_EQ(c.model.quantization_bit, 4) << typed;
  }
  const std::string above = std::filesystem::path(first.dir).parent_path().string();
  const std::vector<std::string> below = {"model_name_or_path=m", "adapter_name_or_path=" + above, "adapter_folder=run"};
  EXPECT_EQ(load({}, below, Purpose::generate).data.template_name, "qwen3");
}

TEST(EarlierRun, ScalesPositionsOfAnAdapterToTheLengthOfTraining) {
  const EarlierRun run(R"({"rope_scaling": "linear", "cutoff_len": 2048, "model_revision": "v2"})");
  const RunConfig c = load_with(run, {}, Purpose::generate);
  EXPECT_EQ(c.model.rope_scaling, "linear");
  EXPECT_TRUE(c.is_given("cutoff_len"));
  EXPECT_EQ(c.model.model_revision, "v2");
  const RunConfig full = load({}, std::vector<std::string>{"model_name_or_path=" + run.dir}, Purpose::generate);
  EXPECT_EQ(full.model.rope_scaling, "") << "its config.json has it";
  EXPECT_EQ(full.model.model_revision, "");
}

TEST(EarlierRun, DecidesWhereTrainOnlyPredicts) {
  const EarlierRun run(kHeldOut);
  std::vector<std::string> typed = {"model_name_or_path=m", "adapter_name_or_path=" + run.dir,
                                    "eval_dataset=v.json",  "output_dir=o",
                                    "do_predict=true",      "predict_with_generate=true"};
  EXPECT_EQ(load({}, typed, Purpose::train).data.template_name, "qwen3");
  typed.emplace_back("do_train=true");
  typed.emplace_back("dataset=d.json");
  EXPECT_EQ(load({}, typed, Purpose::train).data.template_name, "");
}

TEST(EarlierRun, AnErrorInItNamesFileAndKey) {
  const EarlierRun run(R"({"bf16": "maybe"})");
  const std::string error = error_of([&] { load_with(run, {}, Purpose::generate); });
  EXPECT_CONTAINS(error, "run.json: bf16: expected true or false");
  EXPECT_CONTAINS(error, "set load_args: false to ignore that file");
}

TEST(EarlierRun, ATemplateThatIsGoneIsLeftToTheAdapter) {
  const EarlierRun run(R"({"template": "gone.yaml", "default_system": "Be kind.", "tool_format": "qwen"})");
  const RunConfig c = load_with(run, {}, Purpose::generate);
  EXPECT_EQ(c.data.template_name, "");
  EXPECT_EQ(c.data.tool_format, "");
  EXPECT_EQ(c.data.default_system, "Be kind.");
}

constexpr const char* kQueries =
    R"({"stage": "embedding", "query_prompt": "query: ", "embedding_loss": "contrastive", "contrastive_margin": 0.25,
        "mrl_dims": {"8": 1.0}, "reranker_type": "classification", "num_labels": null})";

TEST(EarlierRun, ScoresInTheStageOfTheTraining) {
  const EarlierRun run(kQueries);
  const std::vector<std::string> data = {"eval_dataset=v.json"};
  const RunConfig c = load_with(run, data);
  EXPECT_EQ(c.finetuning.stage, "embedding");
  EXPECT_EQ(c.data.query_prompt, "query: ");
  EXPECT_EQ(c.finetuning.embedding_loss, "contrastive");
  EXPECT_EQ(c.finetuning.contrastive_margin, 0.25);
  EXPECT_EQ(c.finetuning.mrl_dims, (nlohmann::json{{"8", 1.0}}));
  EXPECT_TRUE(has_note(c, "stage 'embedding', "));
  const RunConfig full =
      load({}, std::vector<std::string>{"model_name_or_path=" + run.dir, data[0], "stage=embedding"}, Purpose::eval);
  EXPECT_EQ(full.data.query_prompt, "query: ");
  EXPECT_EQ(load_with(run, {data[0], "stage=sft"}).data.query_prompt, "") << "another stage is given";
  EXPECT_EQ(load_with(run, {data[0], "load_args=false"}).finetuning.stage, "sft");
  const EarlierRun reranker(R"({"stage": "reranker", "reranker_type": "generative", "reranker_loss": "listwise"})");
  EXPECT_EQ(load_with(reranker, {data[0], "stage=reranker"}).finetuning.reranker_type, "generative");
  const EarlierRun classifier(R"({"stage": "seq_cls", "num_labels": 3, "problem_type": "regression"})");
  EXPECT_EQ(load_with(classifier, data).finetuning.num_labels, 3);
  EXPECT_EQ(load_with(EarlierRun(R"({"stage": "dpo"})"), data).finetuning.stage, "sft") << "it answers like any other";
}

TEST(EarlierRun, WarnsOfOtherPromptsThanInTraining) {
  const EarlierRun run(kQueries);
  const auto warning = [&](const std::string& prompt) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(load_with(run, {"eval_dataset=v.json", "query_prompt=" + prompt}).data.query_prompt, prompt);
    return testing::internal::GetCapturedStderr();
  };
  const std::string text = warning("other: ");
  EXPECT_CONTAINS(text, "query_prompt is 'other: '");
  EXPECT_CONTAINS(text, "trained with 'query: '");
  EXPECT_EQ(warning("query: "), "");
}

TEST(EarlierRun, RefusesAnswersOfAModelThatGivesVectorsOrScores) {
  for (const auto& [settings, words] :
       {std::pair(kQueries, "run.json: stage is embedding: an embedding model does not write answers: use qft score (or"),
        {R"({"stage": "reranker", "reranker_type": "generative"})",
         "a reranker does not write answers: use qft score (or stage: sft"}})
    EXPECT_CONTAINS(error_of([&] { load_with(EarlierRun(settings), {}, Purpose::generate); }), words);
  const EarlierRun head(R"({"stage": "reranker"})");
  EXPECT_TRUE(error_of([&] { load_with(head, {}, Purpose::generate); }).ends_with("use qft score"));
  EXPECT_EQ(load_with(EarlierRun(kQueries), {"stage=sft"}, Purpose::generate).finetuning.stage, "sft");
}

TEST(OtherTools, KeysOfAMethodHaveNoEffectInOthers) {
  for (const char* key : {"coft: true\n", "module_dropout: 0.1\n", "galore_target: q_proj\n", "apollo_target: q_proj\n"}) {
    const RunConfig c = load_text(key);
    ASSERT_EQ(c.notes.size(), 1u) << key;
    EXPECT_CONTAINS(c.notes[0], "has no effect in qft: the run does not use its method");
  }
  EXPECT_EQ(load_text("optimizer: null\noptim: lion_32bit\n").training.optim, "lion_32bit");
  EXPECT_TRUE(load_text("loraplus_lr_embedding: 1e-06\n").notes.empty());
}

TEST(SavedRun, IsRepeated) {
  TempFolder folder;
  folder.write("out/run.json", R"({"run": "x", "global_batch_size": 12, "given": ["lora_rank", "learning_rate", "do_train"],
      "settings": {"lora_rank": 4, "lora_alpha": 8, "learning_rate": 0.001, "do_train": true, "do_eval": true, "seed": 42,
                   "data_seed": 42, "bf16": true, "gradient_accumulation_steps": 1, "dataset": null, "eval_steps": 500.0}})");
  const std::string file = folder.path() + "/out/run.json";
  const RunConfig c =
      load(file, std::vector<std::string>{"seed=7", "model_name_or_path=m", "output_dir=o", "dataset=d.json", "val_size=0.1"},
           Purpose::train);
  EXPECT_EQ(c.finetuning.lora_rank, 4);
  EXPECT_FALSE(c.is_given("lora_alpha")) << "it follows from the rank";
  EXPECT_EQ(c.training.global_batch_size, 12);
  EXPECT_EQ(c.training.data_seed, 7) << "it follows from the seed";
  EXPECT_TRUE(c.training.bf16) << "not typed, and not the default: another tool's default";
  EXPECT_TRUE(trains(c));
  EXPECT_FALSE(c.is_given("gradient_accumulation_steps"));
  const RunConfig other = load(file,
                               std::vector<std::string>{"per_device_train_batch_size=3", "model_name_or_path=m", "output_dir=o",
                                                        "dataset=d.json", "val_size=0.1"},
                               Purpose::train);
  EXPECT_FALSE(other.training.global_batch_size.has_value());
  folder.write("scaled/run.json",
               R"({"run": "x", "ranks": 2, "settings": {"scale_lr_by_world_size": true, "learning_rate": 0.01}})");
  const RunConfig scaled = load(folder.path() + "/scaled/run.json", {}, Purpose::any);
  EXPECT_NO_THROW(scaled.check_world(2));
  EXPECT_CONTAINS(error_of([&] { scaled.check_world(1); }), "run.json: ranks is 2, but the job has 1 rank:");
  for (const char* typed : {"num_processes=1", "scale_lr_by_world_size=false"})
    EXPECT_NO_THROW(load(folder.path() + "/scaled/run.json", std::vector<std::string>{typed}, Purpose::any).check_world(1))
        << typed;
  EXPECT_CONTAINS(error_of([&] { load(file, {}, Purpose::generate); }), "to use the trained model give the run's folder");
}

TEST(EarlierRun, WhatIsTypedCounts) {
  const EarlierRun run(kHeldOut);
  const RunConfig c =
      load_with(run, {"--load_data_args=true", "--val_dataset=v.json", "--template=qwen", "--torch_dtype=float16"});
  EXPECT_EQ(c.data.eval_dataset, std::vector<std::string>{"v.json"});
  EXPECT_TRUE(c.data.dataset.empty());
  EXPECT_EQ(c.data.template_name, "qwen");
  EXPECT_EQ(c.data.default_system, "Be kind.");
  EXPECT_FALSE(c.training.bf16);
}

TEST(EarlierRun, ErrorsSayWhatIsMissing) {
  const EarlierRun nothing_held_out(R"({"dataset": ["a.json"], "val_size": 0.0, "eval_dataset": []})");
  EXPECT_CONTAINS(error_of([&] { load_with(nothing_held_out, {"--load_data_args=true"}); }), "had nothing to evaluate");
  const EarlierRun run(kHeldOut);
  std::filesystem::remove(run.dir + "/run.json");
  EXPECT_CONTAINS(error_of([&] { load_with(run, {"--load_data_args=true"}); }), "'run' has no run.json");
  EXPECT_EQ(load_with(run, {"--val_dataset=v.json"}).data.template_name, "");
  EXPECT_CONTAINS(error_of_typed({"--load_data_args=true"}), "which reads only this run file and the command line");
  const EarlierRun again(kHeldOut);
  EXPECT_CONTAINS(error_of([&] { load_with(again, {"--load_data_args=true"}, Purpose::generate); }), "to score answers too");
}

TEST(OtherTools, QuantBitsOfAnExportAreWhatItWrites) {
  const std::vector<std::string> four = {"--model=m",
                                         "--output_dir=o",
                                         "--quant_bits=4",
                                         "--quant_method=bnb",
                                         "--bnb_4bit_quant_type=nf4",
                                         "--bnb_4bit_use_double_quant=true"};
  const RunConfig c = load({}, four, Purpose::export_model);
  EXPECT_EQ(c.exporting.export_quantization_bit, 4);
  EXPECT_FALSE(c.model.quantization_bit.has_value());
  for (const char* other : {"--quant_method=fp8", "--bnb_4bit_quant_type=fp4", "--bnb_4bit_use_double_quant=false"})
    EXPECT_CONTAINS(
        error_of([&] { load({}, std::vector<std::string>{"--model=m", "--output_dir=o", other}, Purpose::export_model); }),
        "is refused: exports have 16 bits, or 4 bits in bitsandbytes' nf4");
}

}  // namespace
}  // namespace qft::dialects
