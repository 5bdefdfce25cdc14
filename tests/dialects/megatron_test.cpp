// Megatron's arguments: ms-swift's `megatron` commands and Megatron-LM's own.
#include "dialect_files.h"

namespace qft::dialects {
namespace {

constexpr const char* kMegatronRun = "model: m\ndataset: d\noutput_dir: o\ntrain_iters: 5\n";

RunConfig load_megatron(const std::string& more, Purpose purpose = Purpose::any) {
  return load_text(kMegatronRun + more, {}, purpose);
}

std::string error_of_megatron(const std::string& more) {
  return error_of_text(kMegatronRun + more);
}

TEST(Megatron, ArgumentsOfACommand) {
  const RunConfig c = load_megatron(
      "tuner_type: lora\nlora_rank: 4\ntarget_modules: all-linear\ntensor_model_parallel_size: 2\ncontext_parallel_size: 2\n"
      "sequence_parallel: true\nmicro_batch_size: 2\nglobal_batch_size: 8\nlr: 1e-4\nmin_lr: 1e-5\nlr_warmup_fraction: 0.05\n"
      "save_steps: 100\neval_steps: 50\npacking: true\nfinetune: true\nno_save_optim: true\nno_save_rng: true\n"
      "dataloader_num_workers: 4\ndataset_num_proc: 3\nrecompute_granularity: full\nrecompute_method: uniform\n"
      "recompute_num_layers: 1\ncross_entropy_loss_fusion: true\nattention_backend: flash\nmoe_aux_loss_coeff: 1e-3\n"
      "moe_permute_fusion: true\nmoe_grouped_gemm: true\noverlap_param_gather: true\nclip_grad: 0.5\nadam_eps: 1e-7\n"
      "model_author: swift\nmodel_name: robot\nmerge_lora: true\nsave_safetensors: true\n");
  EXPECT_EQ(c.finetuning.finetuning_type, "lora");
  EXPECT_EQ(c.parallel.tensor_parallel, 2);
  EXPECT_EQ(c.parallel.context_parallel, 2);
  EXPECT_EQ(c.training.per_device_train_batch_size, 2);
  EXPECT_EQ(c.training.global_batch_size, 8);
  EXPECT_EQ(c.training.learning_rate, 1e-4);
  EXPECT_EQ(c.training.lr_scheduler_type, "cosine_with_min_lr");
  EXPECT_EQ(c.training.lr_scheduler_kwargs, nlohmann::json({{"min_lr", 1e-5}}));
  EXPECT_EQ(c.training.warmup_ratio, 0.05);
  EXPECT_EQ(c.training.max_steps, 5);
  EXPECT_EQ(load_megatron("max_length: 512\n", Purpose::train).data.cutoff_len, 512);
  EXPECT_EQ(c.data.preprocessing_num_workers, 3);
  EXPECT_TRUE(c.training.save_only_model);
  EXPECT_TRUE(c.recompute());
  EXPECT_EQ(c.model.moe_aux_loss_coef, 1e-3);
  EXPECT_EQ(c.training.max_grad_norm, 0.5);
  EXPECT_EQ(c.training.adam_epsilon, 1e-7);
  EXPECT_CONTAINS(notes_of(c), "keys without effect in qft: ");
  EXPECT_CONTAINS(notes_of(c), "moe_aux_loss_coeff: the load-balancing loss is that of transformers");
}

TEST(Megatron, DefaultsAreMegatrons) {
  const RunConfig full = load_megatron("", Purpose::train);
  EXPECT_EQ(full.finetuning.finetuning_type, "full");
  EXPECT_EQ(full.training.learning_rate, 1e-5);
  EXPECT_EQ(full.training.lr_scheduler_type, "cosine");
  EXPECT_EQ(full.training.weight_decay, 0.1);
  EXPECT_EQ(full.training.adam_beta2, 0.95);
  EXPECT_EQ(full.training.per_device_train_batch_size, 1);
  EXPECT_EQ(full.training.global_batch_size, 16);
  EXPECT_TRUE(full.training.bf16);
  EXPECT_FALSE(full.is_given("weight_decay"));
  EXPECT_CONTAINS(notes_of(full),
                  "this run has keys of Megatron, so its defaults apply: finetuning_type: full, learning_rate: 1e-5");
  const RunConfig lora = load_megatron("tuner_type: lora\n", Purpose::train);
  EXPECT_EQ(lora.finetuning.finetuning_type, "lora");
  EXPECT_EQ(lora.training.learning_rate, 1e-4);
  EXPECT_EQ(lora.finetuning.lora_alpha, 32);
  EXPECT_EQ(lora.finetuning.lora_dropout, 0.05);
  EXPECT_EQ(load_text("model: m\ndataset: d\nadapters: a\nlr_warmup_iters: 3\n").finetuning.finetuning_type, "lora");
  EXPECT_EQ(load_text("model: m\ndataset: d\nlr_warmup_iters: 3\n", {}, Purpose::train).training.output_dir, "megatron_output/m");
}

// The degrees alone speak for Megatron beside ms-swift's keys, and not beside LLaMA-Factory's, whose backend has the same names.
TEST(Megatron, IsKnownByItsKeys) {
  EXPECT_EQ(load_text("model: m\ntensor_model_parallel_size: 2\n").finetuning.finetuning_type, "full");
  EXPECT_EQ(load_text("model_name_or_path: m\ntensor_model_parallel_size: 2\n").finetuning.finetuning_type, "lora");
  EXPECT_EQ(load_text("model: m\ntp: 2\n").finetuning.finetuning_type, "lora");
  EXPECT_EQ(load_text("model_name_or_path: m\ntrain_iters: 2\n").finetuning.finetuning_type, "full");
}

TEST(Megatron, ArgumentsOfMegatronLM) {
  const RunConfig c = load_text("", {"--load=m",
                                     "--save=o",
                                     "--data_path=d",
                                     "--micro_batch_size=2",
                                     "--global_batch_size=4",
                                     "--train_iters=7",
                                     "--lr=1e-4",
                                     "--min_lr=1e-6",
                                     "--lr_decay_style=linear",
                                     "--lr_warmup_iters=2",
                                     "--save_interval=3",
                                     "--eval_interval=4",
                                     "--log_interval=1",
                                     "--seq_length=256",
                                     "--num_layers=2",
                                     "--hidden_size=64",
                                     "--swiglu=true",
                                     "--bf16=true",
                                     "--use_distributed_optimizer=true",
                                     "--tokenizer_model=t",
                                     "--weight_decay=0.3",
                                     "--clip_grad=1.0"});
  EXPECT_EQ(c.model.model_name_or_path, "m");
  EXPECT_EQ(c.training.output_dir, "o");
  EXPECT_EQ(c.training.save_steps, 3);
  EXPECT_EQ(c.training.eval_steps, 4);
  EXPECT_EQ(c.training.logging_steps, 1);
  EXPECT_EQ(c.training.warmup_steps, 2);
  EXPECT_EQ(c.data.cutoff_len, 256);
  EXPECT_EQ(c.model.tokenizer_name_or_path, "t");
  EXPECT_EQ(c.training.lr_scheduler_type, "polynomial");
  EXPECT_EQ(c.training.lr_scheduler_kwargs, nlohmann::json({{"lr_end", 1e-6}}));
  EXPECT_EQ(c.parallel.strategy, "zero1");
  EXPECT_EQ(load_text("load: m\n").training.weight_decay, 0.01) << "Megatron-LM's, not ms-swift's";
  EXPECT_CONTAINS(error_of_text("load: a\nmodel: b\n"), "both set model_name_or_path: keep one");
}

TEST(Megatron, SchedulesFallToTheLeastRate) {
  const auto schedule = [](const std::string& more) { return load_megatron(more).training; };
  EXPECT_EQ(schedule("min_lr: 0\n").lr_scheduler_type, "cosine");
  EXPECT_EQ(schedule("lr_decay_style: constant\nmin_lr: 1e-6\n").lr_scheduler_type, "constant_with_warmup");
  EXPECT_EQ(schedule("lr_decay_style: cosine\n").lr_scheduler_type, "cosine");
  EXPECT_EQ(schedule("lr_decay_style: linear\n").lr_scheduler_type, "linear");
  EXPECT_CONTAINS(error_of_megatron("lr_decay_style: WSD\n"), "lr_decay_style: 'WSD' is refused: constant, linear and cosine");
  EXPECT_CONTAINS(error_of_megatron("lr_scheduler_type: cosine\nmin_lr: 1e-6\n"), "write lr_scheduler_type: cosine_with_min_lr");
  EXPECT_CONTAINS(error_of_text("model: m\nmin_lr: 1e-6\n"), "write lr_scheduler_type: cosine_with_min_lr");
  EXPECT_CONTAINS(error_of_megatron("lr_decay_iters: 100\n"), "the schedule ends with the run");
}

TEST(Megatron, TheGlobalBatchDividesIntoMicroBatches) {
  const RunConfig c = load_megatron("micro_batch_size: 2\nglobal_batch_size: 8\ntensor_model_parallel_size: 2\n");
  EXPECT_NO_THROW(c.check_world(8));
  EXPECT_CONTAINS(error_of([&] { c.check_world(6); }),
                  "global_batch_size is 8, which is not a multiple of micro-batch 2 x 3 data");
  const RunConfig by_default = load_megatron("", Purpose::train);
  EXPECT_NO_THROW(by_default.check_world(4));
  EXPECT_CONTAINS(error_of([&] { by_default.check_world(3); }),
                  "global_batch_size (Megatron's default) is 16, which is not a multiple");
  EXPECT_NO_THROW(load_text("model: m\nmicro_batch_size: 2\nglobal_batch_size: 8\n").check_world(3))
      << "as before without Megatron";
}

TEST(Megatron, StrategiesAndOffload) {
  EXPECT_EQ(load_megatron("use_distributed_optimizer: true\n").parallel.strategy, "zero1");
  EXPECT_EQ(load_megatron("use_distributed_optimizer: true\nstrategy: zero3\n").parallel.strategy, "zero3");
  EXPECT_EQ(load_megatron("use_distributed_optimizer: false\n").parallel.strategy, "auto");
  EXPECT_EQ(load_megatron("use_megatron_fsdp: true\n").parallel.strategy, "zero3");
  EXPECT_EQ(load_megatron("data_parallel_sharding_strategy: optim_grads\n").parallel.strategy, "zero2");
  EXPECT_EQ(load_megatron("optimizer_cpu_offload: true\noptimizer_offload_fraction: 1\n").parallel.offload_optimizer, "cpu");
  EXPECT_CONTAINS(error_of_megatron("optimizer_cpu_offload: true\noptimizer_offload_fraction: 0.5\n"),
                  "the whole optimizer state");
  EXPECT_FALSE(load_megatron("recompute_granularity: selective\nrecompute_modules: [core_attn]\n").recompute());
  EXPECT_CONTAINS(error_of_megatron("recompute_granularity: some\n"), "allowed are full");
}

TEST(Megatron, LinearsAndOptimizers) {
  const RunConfig c = load_megatron(
      "tuner_type: lora\ntarget_modules: [linear_qkv, linear_proj, linear_fc1, linear_fc2]\n"
      "modules_to_save: [word_embeddings, output_layer]\n");
  EXPECT_EQ(c.finetuning.lora_target,
            (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}));
  EXPECT_EQ(c.finetuning.additional_target, (std::vector<std::string>{"embed_tokens", "lm_head"}));
  EXPECT_EQ(load_megatron("tuner_type: lora\ntarget_modules: linear_qkv\n").finetuning.lora_target,
            (std::vector<std::string>{"q_proj", "k_proj", "v_proj"}));
  EXPECT_EQ(load_megatron("optimizer: adam\n").training.optim, "adamw_torch");
  EXPECT_EQ(load_megatron("optimizer: sgd\n").training.optim_args, "momentum=0.9");
  EXPECT_EQ(load_megatron("optimizer: sgd\nsgd_momentum: 0.5\n").training.optim_args, "momentum=0.5");
  EXPECT_CONTAINS(error_of_megatron("optimizer: dist_muon\n"),
                  "optimizer: Muon's updates with muon_scale_mode spectral and muon_extra_scale_factor 1 are not implemented");
  const RunConfig muon = load_megatron("optimizer: dist_muon\nmuon_extra_scale_factor: 0.2\nmuon_momentum: 0.95\n");
  EXPECT_EQ(muon.training.optim, "muon");
  EXPECT_EQ(muon.training.optim_args, "momentum=0.95,nesterov=false,ns_steps=5,adjust_lr_fn=match_rms_adamw");
  EXPECT_CONTAINS(load_megatron("optimizer: muon\nmuon_scale_mode: shape_scaling\n").training.optim_args,
                  "adjust_lr_fn=original");
}

TEST(Megatron, EpochsAreAsGiven) {
  const auto epochs = [](const std::string& more) { return load_text("model: m\nlr_warmup_fraction: 0.1\n" + more).training; };
  EXPECT_EQ(epochs("max_epochs: 5\n").num_train_epochs, 5);
  EXPECT_EQ(epochs("num_train_epochs: 4\n").num_train_epochs, 4);
}

TEST(Megatron, RefusalsNameTheKeyAndTheReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"pipeline_model_parallel_size: 2\n",
       "pipeline_model_parallel_size: '2' is refused: pipeline parallelism is not implemented"},
      {"virtual_pipeline_model_parallel_size: 2\n", "pipeline parallelism is not implemented"},
      {"decoder_first_pipeline_num_layers: 3\n", "pipeline parallelism is not implemented"},
      {"expert_model_parallel_size: 8\n", "expert parallelism is not implemented"},
      {"expert_tensor_parallel_size: 2\n", "expert parallelism is not implemented"},
      {"fp8_format: e4m3\n", "training in fp8 or fp4 is not implemented"},
      {"fp4_format: e2m1\n", "training in fp8 or fp4 is not implemented"},
      {"mtp_num_layers: 1\n", "(MTP) are not trained"},
      {"moe_expert_capacity_factor: 2\n", "experts compute all tokens"},
      {"moe_router_load_balancing_type: sinkhorn\n", "load-balancing loss is that of transformers"},
      {"mcore_model: d\n", "qft reads and writes Hugging Face's files"},
      {"mcore_adapter: d\n", "qft reads and writes Hugging Face's files"},
      {"to_mcore: true\n", "qft reads and writes Hugging Face's files"},
      {"finetune: false\n", "name its checkpoint in resume_from_checkpoint"},
      {"exp_avg_dtype: bf16\n", "optim: adamw_8bit"},
      {"main_params_dtype: fp16\n", "gradients, masters and the optimizer's state are fp32"},
      {"weight_decay_incr_style: linear\n", "weight_decay is constant"},
      {"train_samples: 100\n", "count steps of global_batch_size samples"},
      {"rampup_batch_size: 2\n", "every step has global_batch_size samples"},
      {"attention_dropout: 0.1\n", "the models have no dropout"},
      {"split: 949,50,1\n", "hold out samples with val_size"},
      {"sequence_packing_scheduler: dp_balanced\n", "rows are filled best-fit"},
      {"train_backend: colossal\n", "allowed are transformers and megatron"},
  };
  for (const auto& [text, part] : cases) {
    SCOPED_TRACE(text);
    EXPECT_CONTAINS(error_of_megatron(text), part);
    EXPECT_CONTAINS(error_of_megatron(text), "run.yaml:5: ");
  }
  EXPECT_NO_THROW(load_text("train_backend: megatron\n"));
}

// An export runs alone and reads whole files, so the degrees of the training do not matter.
TEST(Megatron, ExportsIgnoreDegrees) {
  const RunConfig c =
      load_text("",
                {"--model=m", "--adapters=a", "--tensor_model_parallel_size=2", "--pipeline_model_parallel_size=2",
                 "--expert_model_parallel_size=2", "--to_hf=true", "--merge_lora=true", "--output_dir=x"},
                Purpose::export_model);
  EXPECT_EQ(c.exporting.export_dir, "x");
  EXPECT_NO_THROW(c.check_world(1));
  EXPECT_CONTAINS(notes_of(c), "--tensor_model_parallel_size=2 has no effect in this program");
}

}  // namespace
}  // namespace qft::dialects
