// Run files and command lines in the words of other tools.
#include <set>

#include "config_files.h"

namespace qft::config {
namespace {

const std::vector<std::string> kSwift = {"--model=m", "--dataset=d"};

RunConfig load_typed(std::vector<std::string> overrides, Purpose purpose = Purpose::train) {
  overrides.insert(overrides.begin(), kSwift.begin(), kSwift.end());
  return load_run_config({}, overrides, purpose);
}

std::string error_of_typed(std::vector<std::string> overrides, Purpose purpose = Purpose::train) {
  return error_of([&] { load_run_config({}, overrides, purpose); });
}

bool has_note(const RunConfig& c, std::string_view part) {
  for (const std::string& note : c.notes)
    if (note.find(part) != std::string::npos) return true;
  return false;
}

TEST(OtherTools, NamesOfSwiftMeanOurKeys) {
  const RunConfig c = load_typed({"--tuner_type=lora", "--torch_dtype=bfloat16", "--target_modules=all-linear", "--max_length=512",
                                  "--system=Be kind.", "--dataset_num_proc=4", "--lora_rank=4", "--deepspeed=default-zero3",
                                  "--save_total_limit=-1", "--adapters=a", "--loss_scale=last_round", "--padding_free=true",
                                  "--max_epochs=5"});
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
  EXPECT_EQ(c.training.num_train_epochs, 5);
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

TEST(OtherTools, NumberOfGpusIsHeldAgainstTheRanks) {
  const RunConfig c = load_text("num_gpus: 8\n");
  EXPECT_NO_THROW(c.check_world(8));
  EXPECT_CONTAINS(error_of([&] { c.check_world(1); }), "run.yaml:1: num_gpus is 8, but 1 rank(s) run: start with mpirun -np 8");
}

TEST(OtherTools, ListsKeepTheirItems) {
  const RunConfig c = load_typed({R"(--target_modules=["q_proj","k_proj"])", R"(--val_dataset=["a#5","b"])"});
  EXPECT_EQ(c.finetuning.lora_target, (std::vector<std::string>{"q_proj", "k_proj"}));
  EXPECT_EQ(c.data.eval_dataset, (std::vector<std::string>{"a#5", "b"}));
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

TEST(OtherTools, DefaultsThatDifferAreSaid) {
  const RunConfig c = load_typed({"--learning_rate=1e-4"});
  EXPECT_EQ(c.training.output_dir, "output/m");
  EXPECT_TRUE(has_note(c, "weight_decay (0.1)"));
  EXPECT_FALSE(has_note(c, "learning_rate (1e-4"));
  EXPECT_TRUE(load_text("model_name_or_path: m\ndataset: d\noutput_dir: o\n", {}, Purpose::train).notes.empty());
}

TEST(OtherTools, TwoMeaningsAreToldApartOrRefused) {
  const std::string common = "model_name_or_path: m\ndataset: d\noutput_dir: o\n";
  EXPECT_CONTAINS(error_of_text(common + "max_length: 2048\n", {}, Purpose::train),
                  "run.yaml:4: max_length: 'max_length' has two meanings: ");
  EXPECT_CONTAINS(error_of_text(common + "system: Be kind.\n", {}, Purpose::train), "write default_system for the data");
  EXPECT_CONTAINS(error_of_text(common + "batch_size: 8\n", {}, Purpose::train), "has two meanings");
  EXPECT_CONTAINS(error_of_text(common + "model_name: x\n", {}, Purpose::train), "write model_name_or_path for that");
  // Beside cutoff_len, max_length can only be that of generation; and so in qft generate.
  const RunConfig both = load_text(common + "max_length: 64\ncutoff_len: 32\n", {}, Purpose::train);
  EXPECT_EQ(both.generate.max_length, 64);
  EXPECT_EQ(both.data.cutoff_len, 32);
  EXPECT_EQ(load_text(common + "max_length: 64\nsystem: S\n", {}, Purpose::generate).generate.system, "S");
  EXPECT_EQ(load_text(common + "batch_size: 8\nmicro_batch_size: 2\n", {}, Purpose::train).training.global_batch_size, 8);
  EXPECT_EQ(load_typed({"--batch_size=4"}).training.per_device_train_batch_size, 4);
  EXPECT_TRUE(has_note(load_typed({"--model_name=bot"}), "texts stay as they are"));
}

TEST(OtherTools, TwoNamesOfAKeyMustAgree) {
  EXPECT_CONTAINS(error_of_text("lora_r: 4\nlora_rank: 8\n"),
                  "run.yaml:2: lora_rank is '8', but run.yaml:1: lora_r is '4', and both mean lora_rank: keep one");
  EXPECT_CONTAINS(error_of_typed({"--torch_dtype=bfloat16", "--bf16=false"}), "both mean bf16");
  EXPECT_EQ(load_text("lora_r: 4\nlora_rank: 4\n").finetuning.lora_rank, 4);
  EXPECT_EQ(load_text("learning_rate: 1e-4\nlr: 0.0001\n").training.learning_rate, 1e-4);
  // The command line comes later than the file, under whatever name.
  EXPECT_EQ(load_text("lora_rank: 8\n", {"lora_r=4"}).finetuning.lora_rank, 4);
  EXPECT_EQ(load_text("lora_rank: 8\n", {"lora_rank=4", "lora_rank=2"}).finetuning.lora_rank, 2);
}

TEST(OtherTools, RefusalsSayWhyAndWhatToDo) {
  EXPECT_CONTAINS(error_of_typed({"--tuner_type=adalora"}), "command line: --tuner_type=adalora: 'adalora' is refused: lora and full");
  EXPECT_CONTAINS(error_of_typed({"--quant_bits=4"}), "quantized base weights are not implemented");
  EXPECT_CONTAINS(error_of_typed({"--task_type=seq_cls"}), "classifiers");
  EXPECT_CONTAINS(error_of_typed({"--rlhf_type=dpo"}), "stages pt and sft run");
  EXPECT_CONTAINS(error_of_typed({"--sequence_parallel_size=2"}), "not implemented");
  EXPECT_CONTAINS(error_of_text("torch_dtype: int8\n"), "there are bfloat16, float16 and float32");
}

TEST(OtherTools, MessagesNameTheKeyAsItWasTyped) {
  EXPECT_CONTAINS(error_of_typed({"--model=m", "--dataset=d", "--split_dataset_ratio=1.5"}),
                  "command line (split_dataset_ratio): val_size: expected a whole number");
  EXPECT_CONTAINS(error_of_text("lora_r: many\n"), "run.yaml:1: lora_r: expected an integer of at least 1, got 'many'");
  EXPECT_CONTAINS(error_of_text("torch_dtype: bfloat16\nfp16: true\n"), "run.yaml:1 (torch_dtype): bf16 and ");
}

}  // namespace
}  // namespace qft::config
