// The meaning of run files: names, defaults and number formats as in LLaMA-Factory and PyYAML.
#include <cstdlib>

#include "config_files.h"

namespace qft::config {
namespace {

constexpr const char* kLoraSft = R"(### model
model_name_or_path: /models/Qwen2.5-7B-Instruct

### method
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
lora_rank: 64
lora_alpha: 128
lora_dropout: 0.05

### dataset
dataset: alpaca_en,identity
dataset_dir: /data
template: qwen
cutoff_len: 2048
preprocessing_num_workers: 8

### output
output_dir: /out/lora
logging_steps: 10
save_steps: 500
save_total_limit: 3

### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 2.0e-5
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
gradient_checkpointing: true

### eval
val_size: 0.0
per_device_eval_batch_size: 1
eval_strategy: "no"
)";

TEST(LoadRunConfig, ReadsALoraRunFile) {
  const RunConfig c = load_text(kLoraSft, {}, Purpose::train);
  EXPECT_EQ(c.model.model_name_or_path, "/models/Qwen2.5-7B-Instruct");
  EXPECT_EQ(c.finetuning.stage, "sft");
  EXPECT_TRUE(c.training.do_train);
  EXPECT_EQ(c.finetuning.lora_target, std::vector<std::string>{"all"});
  EXPECT_EQ(c.finetuning.lora_rank, 64);
  EXPECT_EQ(c.finetuning.lora_alpha, 128);
  EXPECT_DOUBLE_EQ(c.finetuning.lora_dropout, 0.05);
  EXPECT_EQ(c.data.dataset, (std::vector<std::string>{"alpaca_en", "identity"}));
  EXPECT_EQ(c.data.template_name, "qwen");
  EXPECT_EQ(c.data.preprocessing_num_workers, 8);
  EXPECT_EQ(c.training.save_total_limit, 3);
  EXPECT_EQ(c.training.gradient_accumulation_steps, 8);
  EXPECT_DOUBLE_EQ(c.training.learning_rate, 2e-5);
  EXPECT_EQ(c.training.lr_scheduler_type, "cosine");
  EXPECT_EQ(c.training.warmup(1000), 100);
  EXPECT_EQ(c.training.eval_strategy, "no");
  EXPECT_FALSE(c.training.do_eval);
  EXPECT_EQ(c.compute_dtype(), DType::bf16);
  EXPECT_TRUE(c.fp32_masters());
  EXPECT_TRUE(c.recompute());
  EXPECT_EQ(c.parallel.strategy, "auto");
  EXPECT_TRUE(c.notes.empty());
}

TEST(LoadRunConfig, HasTheDefaultsOfLlamaFactoryAndTransformers) {
  const RunConfig c = load_text("");
  EXPECT_EQ(c.training.per_device_train_batch_size, 8);
  EXPECT_DOUBLE_EQ(c.training.learning_rate, 5e-5);
  EXPECT_DOUBLE_EQ(c.training.num_train_epochs, 3.0);
  EXPECT_EQ(c.training.max_steps, -1);
  EXPECT_DOUBLE_EQ(c.training.logging_steps, 0) << "by the run's length";
  EXPECT_DOUBLE_EQ(c.training.eval_steps, 500) << "as in LLaMA-Factory";
  EXPECT_DOUBLE_EQ(load_text("logging_steps: 7\n").training.eval_steps, 7) << "eval_steps follows logging_steps";
  EXPECT_EQ(c.training.seed, 42);
  EXPECT_EQ(c.training.data_seed, 42);
  EXPECT_EQ(c.training.lr_scheduler_type, "linear");
  EXPECT_EQ(c.finetuning.lora_rank, 8);
  EXPECT_EQ(c.finetuning.lora_alpha, 16) << "twice the rank";
  EXPECT_EQ(c.data.cutoff_len, 2048);
  EXPECT_EQ(c.data.packing, false);
  EXPECT_EQ(c.data.enable_thinking, true);
  EXPECT_DOUBLE_EQ(c.generate.temperature, 0.95);
  EXPECT_DOUBLE_EQ(c.generate.top_p, 0.7);
  EXPECT_EQ(c.generate.max_new_tokens, 1024);
  EXPECT_EQ(c.exporting.export_size, 5);
  EXPECT_EQ(c.compute_dtype(), DType::f32);
  EXPECT_FALSE(c.fp32_masters());
  EXPECT_TRUE(c.recompute());
}

TEST(LoadRunConfig, LogsByTheLengthOfTheRun) {
  const auto lines = [](std::string_view text, std::int64_t steps) {
    return load_text(std::string(text)).training.log_interval(steps);
  };
  EXPECT_EQ(lines("", 1), 1);
  EXPECT_EQ(lines("", 39), 1);
  EXPECT_EQ(lines("", 60), 3);
  EXPECT_EQ(lines("", 1999), 99);
  EXPECT_EQ(lines("", 1'000'000), 100);
  EXPECT_EQ(lines("logging_steps: auto\n", 60), 3);
  EXPECT_EQ(lines("logging_steps: 500\n", 60), 500);
  EXPECT_EQ(lines("logging_steps: 0.1\n", 60), 6);
  EXPECT_CONTAINS(error_of_text("logging_steps: 0\n"), "expected a number above 0 and at most 1000000000");
}

TEST(LoadRunConfig, RefusesMoreStepsThanARunCanHave) {
  for (const char* text : {"save_steps: 99999999999999999999\n", "eval_steps: 1e10\n", "logging_steps: 1e300\n",
                           "warmup_steps: 2e9\n", "num_train_epochs: 1.0e300\n", "max_steps: 9000000000000000000\n"})
    EXPECT_CONTAINS(error_of_text(text), "1000000000") << text;
  EXPECT_EQ(load_text("max_steps: 1000000000\n").training.max_steps, kMaxSteps);
}

TEST(LoadRunConfig, ReadsEndingsInAnyCase) {
  TempFolder folder;
  folder.write("RUN.YAML", "lora_rank: 3\n");
  folder.write("run.Json", R"({"lora_rank": 4})");
  EXPECT_EQ(load_run_config(folder.path() + "/RUN.YAML").finetuning.lora_rank, 3);
  EXPECT_EQ(load_run_config(folder.path() + "/run.Json").finetuning.lora_rank, 4);
}

TEST(LoadRunConfig, ReadsNumbersInEveryUsualForm) {
  for (const char* form : {"0.0001", "1e-4", "1.0e-4", "1.E-4", "+1e-4", ".1e-3", "\"1e-4\"", "'0.0001'"}) {
    EXPECT_DOUBLE_EQ(load_text(std::string("learning_rate: ") + form).training.learning_rate, 1e-4) << form;
  }
  EXPECT_EQ(load_text("max_steps: 1_000").training.max_steps, 1000);
  EXPECT_EQ(load_text("max_steps: +7").training.max_steps, 7);
  EXPECT_DOUBLE_EQ(load_text("num_train_epochs: 3").training.num_train_epochs, 3.0);
  EXPECT_DOUBLE_EQ(load_text("save_steps: 0.25").training.save_steps, 0.25);
}

TEST(LoadRunConfig, ReadsBooleansAsYaml11Does) {
  for (const char* word : {"true", "True", "TRUE", "yes", "Yes", "on", "ON"}) {
    EXPECT_TRUE(load_text(std::string("bf16: ") + word).training.bf16) << word;
  }
  for (const char* word : {"false", "False", "no", "NO", "off"}) {
    EXPECT_FALSE(load_text(std::string("use_rslora: ") + word).finetuning.use_rslora) << word;
  }
}

TEST(LoadRunConfig, TakesAnUnquotedNoForTheWordNo) {
  for (const char* word : {"no", "\"no\"", "'no'", "false", "False", "off"}) {
    EXPECT_EQ(load_text(std::string("eval_strategy: ") + word).training.eval_strategy, "no") << word;
    EXPECT_EQ(load_text(std::string("save_strategy: ") + word).training.save_strategy, "no") << word;
  }
}

TEST(LoadRunConfig, TakesNullForNotSet) {
  const RunConfig c = load_text(
      "resume_from_checkpoint: null\neval_steps: ~\nmax_samples:\nenable_thinking: null\nmax_grad_norm: "
      "null\n"
      "lora_alpha: null\ndeepspeed: null\neval_dataset: null\nquantization_bit: null\n");
  EXPECT_EQ(c.training.resume_from_checkpoint, "");
  EXPECT_DOUBLE_EQ(c.training.eval_steps, 500);
  EXPECT_FALSE(c.data.max_samples.has_value());
  EXPECT_FALSE(c.data.enable_thinking.has_value());
  EXPECT_DOUBLE_EQ(c.training.max_grad_norm, 0.0) << "null means no clipping";
  EXPECT_EQ(c.finetuning.lora_alpha, 16);
  EXPECT_TRUE(c.training.deepspeed.is_null());
  EXPECT_TRUE(c.data.eval_dataset.empty());
}

TEST(LoadRunConfig, ReadsListsInAllThreeForms) {
  const std::vector<std::string> both = {"q_proj", "v_proj"};
  EXPECT_EQ(load_text("lora_target: q_proj, v_proj").finetuning.lora_target, both);
  EXPECT_EQ(load_text("lora_target: [q_proj, v_proj]").finetuning.lora_target, both);
  EXPECT_EQ(load_text("lora_target:\n- q_proj\n- v_proj\n").finetuning.lora_target, both);
  const RunConfig mixed = load_text("dataset: a,b\nmix_strategy: interleave_under\ninterleave_probs: 0.7, 0.3\n");
  EXPECT_EQ(mixed.data.interleave_probs, (std::vector<double>{0.7, 0.3}));
}

TEST(LoadRunConfig, TellsBooleansFromPathsInResume) {
  EXPECT_EQ(load_text("resume_from_checkpoint: True").training.resume_from_checkpoint, "true");
  EXPECT_EQ(load_text("resume_from_checkpoint: no").training.resume_from_checkpoint, "false");
  EXPECT_EQ(load_text("resume_from_checkpoint: out/checkpoint-5").training.resume_from_checkpoint, "out/checkpoint-5");
}

TEST(LoadRunConfig, OverridesWinAndTheLaterOverrideMore) {
  const RunConfig c = load_text("lora_rank: 8\nquantization_bit: 4\n",
                                {"lora_rank=16", "lora_rank=32", "quantization_bit=null", "dataset=a,b",
                                 "lora_target=[q_proj, v_proj]", "prompt=What is {x}: a # or b=c?", "max_steps=-1"});
  EXPECT_EQ(c.finetuning.lora_rank, 32);
  EXPECT_EQ(c.data.dataset, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.finetuning.lora_target, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(c.generate.prompt, "What is {x}: a # or b=c?") << "texts are taken as they are";
  EXPECT_EQ(c.given.at("lora_rank"), "command line");
}

TEST(LoadRunConfig, ReadsJsonRunFiles) {
  const char* text =
      "{\n  \"stage\": \"sft\",\n  \"lora_rank\": 4,\n  \"bf16\": true,\n  \"learning_rate\": 1e-4,\n"
      "  \"dataset\": [\"a\", \"b\"],\n  \"system\": \"\\u4f60\\ud83d\\ude00\",\n"
      "  \"eval_dataset\": null,\n  \"eval_strategy\": \"no\"\n}\n";
  const RunConfig c = load_text(text, {}, Purpose::any, "run.json");
  EXPECT_EQ(c.finetuning.lora_rank, 4);
  EXPECT_TRUE(c.training.bf16);
  EXPECT_DOUBLE_EQ(c.training.learning_rate, 1e-4);
  EXPECT_EQ(c.data.dataset, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.generate.system, "\u4f60\U0001F600");
}

TEST(LoadRunConfig, ReadsWindowsLineEndsAndBlockTexts) {
  const RunConfig c = load_text("lora_rank: 4\r\nbf16: true\r\ndefault_system: |\r\n  one\r\n  two\r\n");
  EXPECT_EQ(c.finetuning.lora_rank, 4);
  EXPECT_TRUE(c.training.bf16);
  EXPECT_CONTAINS(c.data.default_system, "two");
}

TEST(LoadRunConfig, ExpandsHomeAndVariablesInPathsOnly) {
  ::setenv("QFT_CONFIG_TEST", "/scratch", 1);
  ::setenv("HOME", "/home/me", 1);
  const RunConfig c = load_text(
      "output_dir: ~/out\nmodel_name_or_path: $QFT_CONFIG_TEST/m\ndataset_dir: ${QFT_CONFIG_TEST}/d\n"
      "adapter_name_or_path: ~/a,${oc.env:QFT_CONFIG_TEST}/b\nprompt: $QFT_CONFIG_TEST costs 5$\npack: "
      "a$/b~\n");
  EXPECT_EQ(c.training.output_dir, "/home/me/out");
  EXPECT_EQ(c.model.model_name_or_path, "/scratch/m");
  EXPECT_EQ(c.data.dataset_dir, "/scratch/d");
  EXPECT_EQ(c.model.adapter_name_or_path, (std::vector<std::string>{"/home/me/a", "/scratch/b"}));
  EXPECT_EQ(c.generate.prompt, "$QFT_CONFIG_TEST costs 5$");
  EXPECT_EQ(c.data.pack, "a$/b~");
}

TEST(LoadRunConfig, ReadsBreadthFirstAutoAndNumbers) {
  EXPECT_EQ(load_text("breadth_first_micro_batches: auto").training.breadth_first_micro_batches, 0);
  EXPECT_EQ(load_text("breadth_first_micro_batches: 4").training.breadth_first_micro_batches, 4);
}

TEST(TrainingArgs, CountsStepsAsTransformersDoes) {
  EXPECT_EQ(TrainingArgs::interval(500, 90), 500);
  EXPECT_EQ(TrainingArgs::interval(0.25, 90), 23) << "rounded up";
  EXPECT_EQ(TrainingArgs::interval(0.001, 90), 1);
  TrainingArgs t;
  t.warmup_ratio = 0.03;
  EXPECT_EQ(t.warmup(90), 3) << "rounded up";
  t.warmup_steps = 20;
  EXPECT_EQ(t.warmup(90), 20) << "steps win over the ratio";
  t.warmup_steps = 0.5;
  EXPECT_EQ(t.warmup(90), 45) << "a fraction";
}

TEST(RunConfig, NamesTheComputeType) {
  EXPECT_EQ(load_text("compute_dtype: float64").compute_dtype(), DType::f64);
  EXPECT_EQ(load_text("fp16: true").compute_dtype(), DType::f16);
  const RunConfig pure = load_text("pure_bf16: true");
  EXPECT_EQ(pure.compute_dtype(), DType::bf16);
  EXPECT_FALSE(pure.fp32_masters());
  EXPECT_FALSE(load_text("disable_gradient_checkpointing: true").recompute());
  EXPECT_FALSE(load_text("gradient_checkpointing: false").recompute());
}

TEST(RunConfig, NotesStepsOfATraceWithoutAFile) {
  const RunConfig c = load_text("trace_steps: 2-3\n");
  ASSERT_FALSE(c.notes.empty());
  EXPECT_CONTAINS(c.notes[0], "run.yaml:1: trace_steps has no effect: trace names no file");
  EXPECT_TRUE(load_text("trace_steps: 2-3\ntrace: t.json\n").notes.empty());
}

TEST(RunConfig, KeepsTheWatchdogOnUnderAnyTimeout) {
  const RunConfig c = load_text("bf16: true\nddp_timeout: 180000000\n");
  EXPECT_EQ(c.training.ddp_timeout, 14400);
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_CONTAINS(c.notes[0], "run.yaml:2: ddp_timeout is 180000000 s");
  EXPECT_CONTAINS(c.notes[0], "using 14400 s");
  EXPECT_EQ(load_text("ddp_timeout: 14400\n").training.ddp_timeout, 14400);
  EXPECT_TRUE(load_text("ddp_timeout: 14400\n").notes.empty());
}

TEST(RunConfig, NotesWhichOfTwoKeysCounts) {
  const RunConfig c = load_text("warmup_ratio: 0.1\nwarmup_steps: 5\nmax_steps: 10\nnum_train_epochs: 2\n");
  ASSERT_EQ(c.notes.size(), 2u);
  EXPECT_CONTAINS(c.notes[0], "warmup_steps overrides");
  EXPECT_CONTAINS(c.notes[1], "run.yaml:4: num_train_epochs, which has no effect");
}

}  // namespace
}  // namespace qft::config
