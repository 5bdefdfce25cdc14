// DeepSpeed and accelerate files: every key is read and compared with the run file; nothing is ignored silently.
#include "dialect_files.h"

namespace qft::dialects {
namespace {

/// A stock DeepSpeed file, with `zero` as the zero_optimization section.
std::string deepspeed_json(const std::string& zero, const std::string& extra = "") {
  return "{\n\"train_batch_size\": \"auto\",\n\"train_micro_batch_size_per_gpu\": \"auto\",\n"
         "\"gradient_accumulation_steps\": \"auto\",\n\"gradient_clipping\": \"auto\",\n"
         "\"zero_allow_untested_optimizer\": true,\n"
         "\"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 0, \"hysteresis\": 2},\n"
         "\"bf16\": {\"enabled\": \"auto\"},\n" +
         extra + "\"zero_optimization\": {" + zero + ", \"overlap_comm\": false, \"reduce_bucket_size\": 5e8}\n}\n";
}

class Import : public testing::Test {
 protected:
  RunConfig deepspeed(const std::string& json, const std::string& run = "bf16: true\n", Purpose purpose = Purpose::any) {
    return load(folder_.write("run.yaml", run + "deepspeed: " + folder_.write("ds.json", json) + "\n"), {}, purpose);
  }
  RunConfig accelerate(const std::string& yaml, const std::string& run = "bf16: true\n",
                       const std::string& key = "accelerate_config") {
    return load(folder_.write("run.yaml", run + key + ": " + folder_.write("acc.yaml", yaml) + "\n"));
  }
  std::string deepspeed_error(const std::string& json, const std::string& run = "bf16: true\n") {
    return error_of([&] { deepspeed(json, run); });
  }
  std::string accelerate_error(const std::string& yaml, const std::string& run = "bf16: true\n",
                               const std::string& key = "accelerate_config") {
    return error_of([&] { accelerate(yaml, run, key); });
  }

  TempFolder folder_;
};

TEST_F(Import, RunsStageZero) {
  const RunConfig c = deepspeed(deepspeed_json("\"stage\": 0"));
  EXPECT_EQ(c.parallel.strategy, "ddp");
  EXPECT_TRUE(c.training.bf16);
  EXPECT_FALSE(c.notes.empty());
}

TEST_F(Import, ReadsTheStages) {
  EXPECT_EQ(deepspeed(deepspeed_json("\"stage\": 1")).parallel.strategy, "zero1");
  EXPECT_EQ(deepspeed(deepspeed_json("\"stage\": 2")).parallel.strategy, "zero2");
  EXPECT_EQ(deepspeed(deepspeed_json("\"stage\": 3")).parallel.strategy, "zero3");
  EXPECT_EQ(load_text("strategy: full_shard\n").parallel.strategy, "zero3");
  EXPECT_EQ(load_text("strategy: hsdp\n").parallel.strategy, "hsdp");
  EXPECT_EQ(load_text("strategy: zero0\n").parallel.strategy, "ddp");
}

TEST_F(Import, ReadsOffload) {
  const auto zero = [&](const std::string& section, const std::string& extra = "") {
    return deepspeed(deepspeed_json(section, extra)).parallel;
  };
  EXPECT_EQ(zero("\"stage\": 0, \"offload_optimizer\": {\"device\": \"cpu\"}").offload_optimizer, "cpu");
  EXPECT_EQ(zero("\"stage\": 3, \"offload_param\": {\"device\": \"cpu\", \"pin_memory\": true}").offload_param, "cpu");
  EXPECT_EQ(zero("\"stage\": 3, \"offload_param\": {\"device\": \"none\"}").offload_param, "none");
  const auto cpu_checkpointing = [](const char* flag) {
    return std::string("\"activation_checkpointing\": {\"cpu_checkpointing\": ") + flag + "},\n";
  };
  EXPECT_EQ(zero("\"stage\": 3", cpu_checkpointing("true")).offload_activations, "cpu");
  EXPECT_EQ(zero("\"stage\": 3", cpu_checkpointing("false")).offload_activations, "none");
  EXPECT_CONTAINS(deepspeed_error(deepspeed_json("\"stage\": 3, \"offload_param\": {\"device\": \"nvme\"}")),
                  "expected one of none, cpu, got the text 'nvme'");
  EXPECT_CONTAINS(error_of_text("offload_activations: cpu\ngradient_checkpointing: false\n"), "gradient_checkpointing is off");
}

TEST_F(Import, ReadsSchedulers) {
  const auto scheduler = [](const std::string& type, const std::string& params) {
    return "{\"scheduler\": {\"type\": \"" + type + "\", \"params\": {" + params + "}}}";
  };
  const std::string linear =
      "\"warmup_type\": \"linear\", \"warmup_min_lr\": 0, \"warmup_max_lr\": 3e-4, \"warmup_num_steps\": 20";
  const auto t = deepspeed(scheduler("WarmupLR", linear), "").training;
  EXPECT_EQ(t.lr_scheduler_type, "constant_with_warmup");
  EXPECT_EQ(t.learning_rate, 3e-4);
  EXPECT_EQ(t.warmup_steps, 20.0);
  const std::string decay = linear + ", \"total_num_steps\": 100";
  EXPECT_EQ(deepspeed(scheduler("WarmupDecayLR", decay), "max_steps: 100\n").training.lr_scheduler_type, "linear");
  const std::string automatic = "\"warmup_min_lr\": \"auto\", \"warmup_max_lr\": \"auto\", \"warmup_num_steps\": \"auto\"";
  const auto stock =
      deepspeed(scheduler("WarmupDecayLR", automatic + ", \"total_num_steps\": \"auto\""), "warmup_steps: 7\n").training;
  EXPECT_EQ(stock.lr_scheduler_type, "linear");
  EXPECT_EQ(stock.warmup_type, "log") << "DeepSpeed's default";
  EXPECT_EQ(stock.warmup_steps, 7.0);
  EXPECT_EQ(t.warmup_type, "linear");
  EXPECT_CONTAINS(deepspeed_error(scheduler("WarmupDecayLR", decay), "max_steps: 90\n"),
                  "total_num_steps is 100, but the run has 90 steps");
  for (const char* steps : {"100", "1e2", "100.0", "\"100\""}) {  // compared when the data determine the steps
    const RunConfig c = deepspeed(scheduler("WarmupDecayLR", linear + ", \"total_num_steps\": " + steps), "");
    EXPECT_NO_THROW(c.check_steps(100)) << steps;
    EXPECT_CONTAINS(error_of([&] { c.check_steps(99); }), "total_num_steps is 100, but the run has 99 steps") << steps;
  }
  for (const char* steps : {"0", "1.5", "1e300", "\"many\""})
    EXPECT_CONTAINS(deepspeed_error(scheduler("WarmupDecayLR", linear + ", \"total_num_steps\": " + steps)),
                    "expected an integer from 1 to ");
  EXPECT_CONTAINS(deepspeed_error(scheduler("WarmupLR", linear), "learning_rate: 1e-4\n"), "asks for learning_rate 0.0003, but ");
  EXPECT_CONTAINS(deepspeed_error(scheduler("WarmupLR", linear), "lr_scheduler_type: cosine\n"), "asks for lr_scheduler_type ");
  EXPECT_CONTAINS(deepspeed_error(scheduler("WarmupLR", automatic), "warmup_type: linear\n"),
                  "asks for warmup_type \"log\", but ");
  EXPECT_CONTAINS(deepspeed_error(scheduler("WarmupLR", "\"warmup_num_steps\": \"auto\"")),
                  "has no warmup_max_lr, and DeepSpeed's default is 0.001");
  EXPECT_CONTAINS(deepspeed_error(scheduler("WarmupLR", "\"warmup_max_lr\": 1e-4")),
                  "has no warmup_num_steps, and DeepSpeed's default is 1000");
  EXPECT_CONTAINS(deepspeed_error(scheduler("WarmupLR", "\"warmup_type\": \"linear\", \"warmup_min_lr\": 1e-6")), "rises from 0");
  EXPECT_CONTAINS(deepspeed_error(scheduler("OneCycle", "\"warmup_type\": \"linear\"")), "expected one of WarmupLR");
}

TEST_F(Import, ReadsLossScaling) {
  const std::string fp16 =
      "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 12, \"loss_scale_window\": 50, "
      "\"hysteresis\": 4, \"consecutive_hysteresis\": true, \"min_loss_scale\": 8}";
  const auto t = deepspeed("{" + fp16 + "}", "").training;
  EXPECT_TRUE(t.fp16);
  EXPECT_EQ(t.fp16_initial_scale_power, 12);
  EXPECT_EQ(t.fp16_loss_scale_window, 50);
  EXPECT_EQ(t.fp16_hysteresis, 4);
  EXPECT_TRUE(t.fp16_consecutive_hysteresis);
  EXPECT_EQ(t.fp16_min_loss_scale, 8.0);
  EXPECT_EQ(t.fp16_loss_scale, 0.0);
  EXPECT_EQ(deepspeed("{\"fp16\": {\"enabled\": true, \"loss_scale\": 128}}", "").training.fp16_loss_scale, 128.0);
  EXPECT_EQ(load_text("fp16: true\nfp16_loss_scale: dynamic\n").training.fp16_loss_scale, 0.0);
  EXPECT_CONTAINS(deepspeed_error("{" + fp16 + "}", "fp16: true\nfp16_hysteresis: 2\n"), "asks for fp16_hysteresis 4, but ");
  EXPECT_CONTAINS(deepspeed_error("{\"fp16\": {\"fp16_master_weights_and_grads\": true}}"), "is refused: masters are kept");
}

TEST_F(Import, ReadsShardingForProgramsThatDoNotShard) {
  const RunConfig c = deepspeed(deepspeed_json("\"stage\": 3, \"offload_param\": {\"device\": \"cpu\", \"pin_memory\": true}"),
                                "tokenizer_name_or_path: t\ndataset: a\n", Purpose::pack);
  EXPECT_EQ(c.parallel.strategy, "zero3");
  EXPECT_EQ(c.parallel.offload_param, "cpu");
}

TEST_F(Import, KnowsTheNamedConfigurations) {
  EXPECT_EQ(load_text("deepspeed: zero0\n").parallel.strategy, "ddp");
  const RunConfig c = load_text("deepspeed: zero3_offload\nmodel_name_or_path: m\n", {}, Purpose::plan);
  EXPECT_EQ(c.parallel.strategy, "zero3");
  EXPECT_EQ(c.parallel.offload_optimizer, "cpu");
  EXPECT_EQ(c.parallel.offload_param, "cpu");
  EXPECT_EQ(load_text("deepspeed: zero2\n").parallel.strategy, "zero2");
  EXPECT_CONTAINS(error_of_text("deepspeed: zero2_ofload\n"), "did you mean 'zero2_offload'?");
  EXPECT_CONTAINS(error_of_text("deepspeed: missing/ds.json\n"), "there is no file 'missing/ds.json'");
  EXPECT_CONTAINS(error_of_text("deepspeed: true\n"), "expected a file or a name");
}

TEST_F(Import, ReadsAnInlineSection) {
  EXPECT_EQ(load_text("deepspeed:\n  zero_optimization:\n    stage: 0\n").parallel.strategy, "ddp");
  EXPECT_CONTAINS(error_of_text("deepspeed:\n  zero_optimization:\n    stage: 7\n"), "expected a stage from 0 to 3");
}

TEST_F(Import, HoldsNumbersAgainstTheRunFile) {
  const std::string json = "{\"train_micro_batch_size_per_gpu\": 4,\n\"gradient_clipping\": 1.0}";
  const std::string error = deepspeed_error(json, "per_device_train_batch_size: 1\n");
  EXPECT_CONTAINS(error, "ds.json:1: train_micro_batch_size_per_gpu asks for per_device_train_batch_size 4, but ");
  EXPECT_CONTAINS(error, "run.yaml:1: per_device_train_batch_size is 1");
  EXPECT_EQ(deepspeed(json, "per_device_train_batch_size: 4\n").training.per_device_train_batch_size, 4);
  EXPECT_EQ(deepspeed(json, "").training.per_device_train_batch_size, 4) << "set where the run file is silent";
  EXPECT_CONTAINS(deepspeed_error("{\"bf16\": {\"enabled\": false}}"), "asks for bf16 false");
  EXPECT_CONTAINS(deepspeed_error("{\"gradient_accumulation_steps\": 2}", "gradient_accumulation_steps: 8\n"),
                  "asks for gradient_accumulation_steps 2");
  const char* optimizer = "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4, \"betas\": [0.9, 0.95]}}}";
  EXPECT_DOUBLE_EQ(deepspeed(optimizer).training.adam_beta2, 0.95);
  EXPECT_CONTAINS(deepspeed_error(optimizer, "learning_rate: 2e-4\n"), "asks for learning_rate 0.0001");
  EXPECT_CONTAINS(deepspeed_error(optimizer, "adam_beta2: 0.999\n"), "asks for adam_beta2 0.95");
  EXPECT_EQ(deepspeed(optimizer, "optim: adamw_hf\n").training.optim, "adamw_hf");
  EXPECT_CONTAINS(deepspeed_error(optimizer, "optim: lion_32bit\n"), "asks for optim \"adamw\", but ");
  EXPECT_CONTAINS(deepspeed_error(optimizer, "optim: adamw_8bit\n"), "asks for optim \"adamw\", but ");
  EXPECT_EQ(deepspeed("{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1e-4}}}").training.optim, "sgd");
  EXPECT_CONTAINS(deepspeed_error("{\"optimizer\": {\"type\": \"Muon\"}}", ""), "is refused: qft help optim lists");
  const char* lion = "{\"optimizer\": {\"type\": \"Lion\", \"params\": {\"betas\": [0.9, 0.99]}}}";
  EXPECT_EQ(deepspeed(lion).training.optim, "lion");
  EXPECT_DOUBLE_EQ(deepspeed(lion).training.adam_beta2, 0.99);
  EXPECT_EQ(deepspeed(lion, "optim: lion_32bit\n").training.optim, "lion_32bit");
  EXPECT_CONTAINS(deepspeed_error(lion, "optim: adamw_torch\n"), "asks for optim \"lion\", but ");
  EXPECT_CONTAINS(deepspeed_error("{\"zero_optimization\": {\"stage\": 2}}", "strategy: ddp\n"), "asks for strategy zero2, but ");
}

TEST_F(Import, RefusesWhatWouldChangeTheResult) {
  EXPECT_CONTAINS(deepspeed_error("{\"optimizer\": {\"type\": \"OneBitAdam\"}}"), "is refused: qft help optim lists");
  EXPECT_CONTAINS(deepspeed_error("{\"scheduler\": {\"type\": \"OneCycle\"}}"), "set lr_scheduler_type");
  EXPECT_CONTAINS(deepspeed_error("{\"zero_optimisation\": {\"stage\": 2}}"),
                  "unknown key: did you mean 'zero_optimization.stage'?");
  EXPECT_CONTAINS(deepspeed_error("[1]"), "expected a mapping");
  EXPECT_CONTAINS(deepspeed_error("{\"train_batch_size\": 0}"), "expected an integer from 1 to ");
}

TEST_F(Import, ChecksTheGlobalBatchWhenTheRanksAreKnown) {
  const RunConfig c = deepspeed("{\"train_batch_size\": 32}", "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n");
  EXPECT_NO_THROW(c.check_world(4));
  const std::string error = error_of([&] { c.check_world(2); });
  EXPECT_CONTAINS(error, "ds.json:1: train_batch_size is 32, but a step has 16 samples");
  EXPECT_NO_THROW(load_text("per_device_train_batch_size: 2\n").check_world(7));
}

constexpr const char* kAccelerate =
    "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: {}\ndowncast_bf16: "
    "'no'\nmachine_rank: 0\n"
    "main_training_function: main\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 2\nrdzv_backend: "
    "static\n"
    "same_network: true\ntpu_env: []\ntpu_use_cluster: false\ntpu_use_sudo: false\nuse_cpu: false\n";

std::string accelerate_yaml(const std::string& type, const std::string& more = "") {
  return fmt::format(fmt::runtime(kAccelerate), type) + more;
}

TEST_F(Import, ReadsAccelerateFilesOfPlainDataParallelism) {
  for (const char* type : {"MULTI_GPU", "MULTI_CPU", "NO", "'NO'"}) {
    const RunConfig c = accelerate(accelerate_yaml(type));
    EXPECT_EQ(c.parallel.strategy, "ddp") << type;
    EXPECT_NO_THROW(c.check_world(2));
    EXPECT_CONTAINS(error_of([&] { c.check_world(3); }), "num_processes is 2, but the job has 3 ranks: start with mpirun -np 2");
  }
  EXPECT_TRUE(accelerate(accelerate_yaml("NO"), "").training.bf16) << "set where the run file is silent";
  EXPECT_CONTAINS(accelerate_error(accelerate_yaml("MULTI_GPU"), "bf16: false\n"), "mixed_precision asks for bf16 true");
  EXPECT_EQ(accelerate(accelerate_yaml("MULTI_GPU"), "", "fsdp").parallel.strategy, "ddp") << "fsdp: takes a file too";
}

TEST_F(Import, ReadsFsdpSections) {
  const auto fsdp = [](const std::string& section) { return accelerate_yaml("FSDP", "fsdp_config:\n" + section); };
  EXPECT_EQ(accelerate(fsdp("  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_use_orig_params: true\n")).parallel.strategy, "zero3");
  EXPECT_EQ(accelerate(fsdp("  fsdp_sharding_strategy: 2\n")).parallel.strategy, "shard_grad_op");
  EXPECT_EQ(accelerate(fsdp("  fsdp_sharding_strategy: HYBRID_SHARD\n")).parallel.strategy, "hsdp");
  EXPECT_EQ(accelerate(fsdp("  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n")).parallel.strategy, "shard_grad_op");
  EXPECT_EQ(accelerate(fsdp("  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n")).parallel.strategy, "zero3");
  EXPECT_EQ(accelerate(accelerate_yaml("FSDP")).parallel.strategy, "zero3");
  EXPECT_EQ(accelerate(fsdp("  fsdp_sharding_strategy: NO_SHARD\n")).parallel.strategy, "ddp");
  EXPECT_EQ(accelerate(fsdp("  fsdp_sharding_strategy: NO_SHARD\n  fsdp_offload_params: true\n")).parallel.offload_param, "cpu");
  EXPECT_CONTAINS(accelerate_error(fsdp("  fsdp_sharding_strategy: HALF\n")), "expected one of FULL_SHARD");
  EXPECT_CONTAINS(accelerate_error(fsdp("  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_reshard_after_forward: true\n")),
                  "sharding_strategy is 'SHARD_GRAD_OP', but ");
  EXPECT_EQ(accelerate(fsdp("  fsdp_sharding_strategy: HYBRID_SHARD\n  fsdp_reshard_after_forward: true\n")).parallel.strategy,
            "hsdp");
  const RunConfig hybrid = accelerate(fsdp("  fsdp_sharding_strategy: HYBRID_SHARD_ZERO2\n"));
  EXPECT_CONTAINS(fmt::format("{}", fmt::join(hybrid.notes, "; ")), "reshards weights after forward, as with HYBRID_SHARD");
  EXPECT_CONTAINS(accelerate_error(fsdp("  fsdp_offload_params: maybe\n")),
                  "offload_params: expected true or false, got 'maybe'");
  EXPECT_CONTAINS(accelerate_error(fsdp("  fsdp_version: 7\n")), "allowed are FSDP versions 1 and 2");
  EXPECT_CONTAINS(accelerate_error(accelerate_yaml("FSDP", "fsdp_config: FULL_SHARD\n")),
                  "fsdp_config: expected a mapping of keys to values, got 'FULL_SHARD'");
  EXPECT_CONTAINS(accelerate_error(fsdp("  fsdp_shardin_strategy: FULL_SHARD\n")), "did you mean 'sharding_strategy'");
}

TEST_F(Import, LeavesRecomputationToTheRunFileWhereFsdpHasNone) {
  const auto recompute = [&](const char* flag, const std::string& run) {
    return accelerate(accelerate_yaml("FSDP", fmt::format("fsdp_config:\n  fsdp_activation_checkpointing: {}\n", flag)), run)
        .recompute();
  };
  EXPECT_TRUE(recompute("false", ""));
  EXPECT_TRUE(recompute("false", "gradient_checkpointing: true\n"));
  EXPECT_FALSE(recompute("false", "gradient_checkpointing: false\n"));
  EXPECT_TRUE(recompute("true", ""));
  EXPECT_TRUE(recompute("true", "gradient_checkpointing: false\n"));  // as transformers requires: only FSDP recomputes
}

TEST_F(Import, ReadsAFileOfFsdpAndItsOptions) {
  const auto load = [&](std::string_view text) { return load_text(fmt::format("fsdp: {}\n", folder_.write("fsdp.json", text))); };
  EXPECT_EQ(load(R"({"_remark": 1, "fsdp": "shard_grad_op auto_wrap", "fsdp_config": {"fsdp_version": 2}})").parallel.strategy,
            "shard_grad_op");
  EXPECT_CONTAINS(error_of([&] { load("[\"full_shard\"]"); }),
                  "fsdp.json: expected an object with fsdp and fsdp_config, got a list");
  EXPECT_CONTAINS(error_of([&] { load("\"full_shard\""); }),
                  "expected an object with fsdp and fsdp_config, got the text 'full_shard'");
  EXPECT_CONTAINS(error_of([&] { load("{}"); }), "got an empty one");
}

TEST_F(Import, SaysThatASectionOfAnotherKindHasNoEffect) {
  const RunConfig fsdp = accelerate(accelerate_yaml("MULTI_GPU", "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"));
  EXPECT_EQ(fsdp.parallel.strategy, "ddp");
  EXPECT_CONTAINS(fmt::format("{}", fmt::join(fsdp.notes, "; ")), "fsdp_config has no effect: distributed_type is not FSDP");
  const RunConfig zero =
      accelerate(accelerate_yaml("MULTI_GPU", "deepspeed_config:\n  zero_stage: 3\n  gradient_accumulation_steps: 4\n"));
  EXPECT_EQ(zero.training.gradient_accumulation_steps, 1);
  EXPECT_CONTAINS(fmt::format("{}", fmt::join(zero.notes, "; ")),
                  "deepspeed_config has no effect: distributed_type is not DEEPSPEED");
}

TEST_F(Import, TakesAValueInPlaceOfASectionForAnError) {
  EXPECT_CONTAINS(deepspeed_error("{\"zero_optimization\": true}"),
                  "zero_optimization: expected a mapping of keys to values, got 'true'");
  EXPECT_CONTAINS(deepspeed_error("{\"bf16\": true}"), "bf16: expected a mapping");
  EXPECT_CONTAINS(deepspeed_error("{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": \"cpu\"}}"),
                  "expected a mapping of keys to values, got the text 'cpu'");
  EXPECT_EQ(deepspeed("{\"zero_optimization\": {\"stage\": 3, \"offload_param\": null}, \"optimizer\": null, \"scheduler\": {}, "
                      "\"fp16\": false}")
                .parallel.strategy,
            "zero3")
      << "a section that is explicitly empty";
}

TEST_F(Import, ReadsDeepSpeedSectionsOfAccelerate) {
  const auto section = [](const std::string& text) {
    return accelerate_yaml("DEEPSPEED", "deepspeed_config:\n  zero3_init_flag: true\n" + text);
  };
  EXPECT_EQ(accelerate(section("  zero_stage: 3\n")).parallel.strategy, "zero3");
  EXPECT_EQ(accelerate(section("  zero_stage: 0\n  offload_optimizer_device: cpu\n")).parallel.offload_optimizer, "cpu");
  EXPECT_EQ(accelerate(section("  zero_stage: 0\n  gradient_accumulation_steps: 4\n")).training.gradient_accumulation_steps, 4);
  const std::string file = folder_.write("inner.json", "{\"zero_optimization\": {\"stage\": 1}}");
  EXPECT_EQ(accelerate(section("  deepspeed_config_file: " + file + "\n")).parallel.strategy, "zero1");
  const std::string twice = section("  zero_stage: 3\n  deepspeed_config_file: " + file + "\n");
  EXPECT_CONTAINS(accelerate_error(twice), "asks for strategy zero3, but ");
}

TEST_F(Import, RefusesOtherKindsOfAccelerateFiles) {
  EXPECT_CONTAINS(accelerate_error(accelerate_yaml("MEGATRON_LM")), "expected one of NO, MULTI_GPU");
  EXPECT_CONTAINS(accelerate_error("mixed_precision: bf16\n"), "distributed_type is missing");
  EXPECT_CONTAINS(accelerate_error("distributed_type: NO\nmixed_precision: fp8\n"), "expected one of no, bf16, fp16");
  EXPECT_CONTAINS(accelerate_error("distributed_type: NO\nnum_proceses: 4\n"), "did you mean 'num_processes'?");
  EXPECT_CONTAINS(error_of_text("accelerate_config: /nowhere/acc.yaml\n"), "there is no such file");
}

TEST_F(Import, ReadsFsdpWords) {
  EXPECT_EQ(load_text("fsdp: full_shard auto_wrap\n").parallel.strategy, "zero3");
  EXPECT_EQ(load_text("fsdp: [shard_grad_op, auto_wrap]\n").parallel.strategy, "shard_grad_op");
  EXPECT_EQ(load_text("fsdp: no_shard auto_wrap\n").parallel.strategy, "ddp");
  EXPECT_EQ(load_text("fsdp: no_shard offload\n").parallel.offload_param, "cpu");
  EXPECT_EQ(load_text("fsdp: no_shard offload\n").parallel.offload_optimizer, "cpu");
  EXPECT_EQ(load_text("fsdp: true\nfsdp_config: {reshard_after_forward: false}\n").parallel.strategy, "shard_grad_op");
  EXPECT_CONTAINS(error_of_text("fsdp: half_shard\n"), "expected one of FULL_SHARD");
  EXPECT_EQ(load_text("fsdp: \"\"\nfsdp_config: null\n").parallel.strategy, "auto");
  EXPECT_CONTAINS(load_text("fsdp_config: {min_num_params: 0}\n").notes.at(0), "no effect without fsdp");
}

TEST_F(Import, TakesOneLauncherOnly) {
  EXPECT_CONTAINS(error_of_text("deepspeed: zero0\nfsdp: no_shard\n"), "are both given");
  EXPECT_CONTAINS(error_of_text("deepspeed: zero0\naccelerate_config: a.yaml\n"), "are both given");
  EXPECT_CONTAINS(error_of_text("fsdp: no_shard\naccelerate_config: a.yaml\n"), "are both given");
}

}  // namespace
}  // namespace qft::dialects
