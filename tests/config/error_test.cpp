// Errors name file, line, key, both values and the remedy.
#include "qft/config/start.h"

#include <sys/stat.h>

#include "config_files.h"
#include <fmt/ranges.h>

namespace qft::config {
namespace {

TEST(ConfigErrors, NameTheNearestKey) {
  EXPECT_EQ(error_of_text("bf16: true\nlora_rnak: 8\n"), "run.yaml:2: lora_rnak: unknown key: did you mean 'lora_rank'?");
  EXPECT_EQ(error_of_text("", {"learningrate=1e-4"}),
            "command line: learningrate=1e-4: unknown key: did you mean 'learning_rate'?");
  EXPECT_CONTAINS(error_of_text("zzzzqqqqxxxx: 1\n"), "unknown key: see qft train --help");
}

TEST(ConfigErrors, NameExpectedTypeAndText) {
  EXPECT_EQ(error_of_text("bf16: true\n\nlearning_rate: fast\n"),
            "run.yaml:3: learning_rate: expected a number of at least 0, got 'fast'");
  EXPECT_CONTAINS(error_of_text("lora_rank: 8.5\n"), "expected an integer of at least 1, got '8.5'");
  EXPECT_CONTAINS(error_of_text("lora_rank: \"8\"\n"), "got the text '8'");
  EXPECT_CONTAINS(error_of_text("lora_rank: 010\n"), "expected an integer");
  EXPECT_CONTAINS(error_of_text("lora_rank: 99999999999999999999\n"), "expected an integer");
  EXPECT_CONTAINS(error_of_text("lora_rank: [1, 2]\n"), "got a list");
  EXPECT_CONTAINS(error_of_text("bf16: maybe\n"), "expected true or false, got 'maybe'");
  EXPECT_CONTAINS(error_of_text("bf16: \"true\"\n"), "expected true or false, got the text 'true'");
  EXPECT_CONTAINS(error_of_text("bf16: 1\n"), "expected true or false");
  EXPECT_CONTAINS(error_of_text("template:\n  a: b\n"), "expected a text, got a mapping");
  EXPECT_CONTAINS(error_of_text("dataset:\n  a: b\n"), "expected a list of texts, got a mapping");
  EXPECT_CONTAINS(error_of_text("dataset: a,,b\n"), "an item is empty");
  EXPECT_CONTAINS(error_of_text("dataset:\n- a\n- [b]\n"), "an item is a list");
  EXPECT_CONTAINS(error_of_text("", {"learning_rate=fast"}), "command line: learning_rate=fast: expected a number");
}

TEST(ConfigErrors, NameAllowedValues) {
  EXPECT_CONTAINS(error_of_text("eval_strategy: often\n"), "expected one of no, steps, epoch, got 'often'");
  EXPECT_CONTAINS(error_of_text("lora_dropout: 1.0\n"), "expected a number from 0 to 1 (excluded), got '1.0'");
  EXPECT_CONTAINS(error_of_text("cutoff_len: 0\n"), "expected an integer of at least 1");
  EXPECT_CONTAINS(error_of_text("lora_rank: -1\n"), "expected an integer of at least 1");
  EXPECT_CONTAINS(error_of_text("num_train_epochs: 0\n"), "expected a number above 0");
  EXPECT_CONTAINS(error_of_text("save_steps: 1.5\n"), "whole from 1 on");
  EXPECT_CONTAINS(error_of_text("learning_rate: nan\n"), "expected a number");
  EXPECT_CONTAINS(error_of_text("learning_rate: inf\n"), "expected a number");
  EXPECT_CONTAINS(error_of_text("learning_rate: 1e999\n"), "expected a number");
  EXPECT_CONTAINS(error_of_text("breadth_first_micro_batches: some\n"), "or auto");
  EXPECT_CONTAINS(error_of_text("interleave_probs: 0.5, 1.5\n"), "from 0 to 1");
}

TEST(ConfigErrors, NameTheChoiceThatWasMeant) {
  for (const auto& [text, meant] :
       {std::pair{"finetuning_type: lroa\n", "lora"}, std::pair{"stage: sftt\n", "sft"},
        std::pair{"save_strategy: epochs\n", "epoch"}, std::pair{"lr_scheduler_type: cosin\n", "cosine"}}) {
    const std::string error = error_of_text(text);
    EXPECT_CONTAINS(error, fmt::format("': did you mean '{}'?", meant));
    EXPECT_EQ(error.find("implemented"), std::string::npos) << error;
  }
  EXPECT_CONTAINS(error_of_text("stage: orpo\n"), "got 'orpo': other stages");
  EXPECT_CONTAINS(error_of_text("save_strategy: best\n"), "got 'best': to keep the best checkpoint");
}

TEST(ConfigErrors, SayWhatToDoAboutWhatIsNotImplemented) {
  EXPECT_CONTAINS(error_of_text("stage: ppo\n"), "such as ppo, are not implemented");
  EXPECT_CONTAINS(error_of_text("optim: adam_mini\n"), "optim: expected one of adamw_torch, ");
  EXPECT_CONTAINS(error_of_text("finetuning_type: boft\n"), "lora is the nearest");
  EXPECT_CONTAINS(error_of_text("\nquantization_bit: 5\n"), "run.yaml:2: quantization_bit: expected 4 or 8, got 5");
  EXPECT_CONTAINS(error_of_text("quantization_bit: 4\nquantization_method: fp8\n"), "which has 8 bits");
  EXPECT_CONTAINS(error_of_text("quantization_bit: 4\nquantization_method: hqq\n"), "expected one of bnb, int8, fp8");
  EXPECT_CONTAINS(error_of_text("quantization_bit: 4\nfinetuning_type: full\n"), "quantised weights cannot be trained");
  EXPECT_CONTAINS(error_of_text("rope_scaling: longrope\n"), "config.json");
}

TEST(ConfigErrors, RefuseNothingThatAsksForNothing) {
  EXPECT_TRUE(load_text("quantization_bit:\nneftune_noise_alpha: 0\nreport_to: [none]\nlr_scheduler_kwargs: {}\n").notes.empty());
}

TEST(ConfigErrors, RefuseOtherToolsWithoutTheirDialects) {
  EXPECT_CONTAINS(error_of_text("use_muon: true\n"), "run.yaml:1: use_muon: unknown key");
  for (const char* given :
       {"deepspeed: zero2\n", "fsdp: full_shard\n", "fsdp_config: {version: 2}\n", "accelerate_config: a.yaml\n"})
    EXPECT_CONTAINS(error_of_text(given), "this program does not read the configurations of other tools");
}

TEST(ConfigErrors, RefuseDoubledKeys) {
  EXPECT_EQ(error_of_text("lora_rank: 8\nbf16: true\nlora_rank: 16\n"),
            "run.yaml:3: key 'lora_rank' is given twice, first on line 1: remove one");
  EXPECT_CONTAINS(error_of_text("{\"lora_rank\": 8,\n\"lora_rank\": 8}", {}, Purpose::any, "run.json"),
                  "run.json:2: key 'lora_rank' is given twice");
}

TEST(ConfigErrors, RefuseAnchorsAliasesAndTags) {
  EXPECT_CONTAINS(error_of_text("output_dir: &x out\nrun_name: *x\n"), "run.yaml:1: YAML anchors and aliases");
  EXPECT_CONTAINS(error_of_text("a: &x {b: 1}\n"), "run.yaml:1: YAML anchors and aliases");
  EXPECT_CONTAINS(error_of_text("a: &x [1]\n"), "anchors");
  EXPECT_CONTAINS(error_of_text("lora_rank: !!int 8\n"), "run.yaml:1: YAML tags are not supported");
}

TEST(ConfigErrors, RefuseWhatCannotBeReadToItsEnd) {
  const TempFolder folder;
  const std::string pipe = folder.path() + "/pipe.yaml";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_CONTAINS(error_of([&] { load_run_config(pipe); }), "pipe.yaml is a pipe or a device");
  EXPECT_CONTAINS(error_of_text("# " + std::string(5 << 20, 'x')), "has 5242882 bytes, but the limit is 4194304");
}

TEST(ConfigErrors, StayShortAndQuickWhateverTheText) {
  const std::string error = error_of_text(std::string(300, 'x') + "\n");
  EXPECT_CONTAINS(error, "got '" + std::string(200, 'x') + " ...'");
  std::string keys;
  for (int i = 0; i < 200000; ++i) keys += fmt::format("k{}: 1\n", i);
  EXPECT_CONTAINS(error_of_text(keys), "run.yaml:10001: more than 10000 keys in one mapping");
  for (const char* open : {"[", "{a: ", "- ", "? ", "a: [{b: ", "- ? "}) {
    std::string deep;
    while (deep.size() < 1000000) deep += open;
    EXPECT_CONTAINS(error_of_text(deep), "run.yaml:1: ") << open;
  }
}

TEST(ConfigErrors, LocateBrokenFiles) {
  EXPECT_CONTAINS(error_of_text("bf16: true\n  lora_rank: 8\n"), "run.yaml:2: not valid YAML");
  EXPECT_CONTAINS(error_of_text("bf16: [true\n"), "not valid YAML");
  EXPECT_CONTAINS(error_of_text("- a\n- b\n"), "expected 'key: value' lines, got a list");
  EXPECT_CONTAINS(error_of_text("just words\n"), "expected 'key: value' lines");
  EXPECT_CONTAINS(error_of_text("bf16: true\n---\nbf16: false\n"), "more than one YAML document");
  EXPECT_CONTAINS(error_of_text("[a]: b\n"), "cannot be a key");
  EXPECT_CONTAINS(error_of_text("{\n\"lora_rank\": 8,\n}\n", {}, Purpose::any, "run.json"),
                  "run.json:2: not valid JSON (column 15): a comma before '}': remove it");
  EXPECT_CONTAINS(error_of_text("{\"lora_rank\": 8", {}, Purpose::any, "run.json"), "not valid JSON");
  EXPECT_CONTAINS(error_of_text("{\n\"lora_rank\": \"x\"}", {}, Purpose::any, "run.json"), "run.json:2: lora_rank");
  EXPECT_CONTAINS(error_of_text("", {}, Purpose::any, "run.json"), "not valid JSON");
  EXPECT_CONTAINS(error_of_text("default_system: \"a\xff\xfe\"\n"), "not valid UTF-8");
  EXPECT_CONTAINS(error_of_text("a: " + std::string(100, '[') + std::string(100, ']')), "nesting");
  EXPECT_CONTAINS(error_of_text(std::string(100000, '['), {}, Purpose::any, "run.json"), "nesting");
}

struct Broken {
  const char* text;
  const char* message;
};

TEST(ConfigErrors, SayInPlainWordsWhatIsNoYaml) {
  const Broken cases[] = {
      {"stage: sft\nlearning_rate 1e-4\ndataset: x\n",
       "run.yaml:2: not valid YAML (column 1): 'learning_rate 1e-4' has no colon: write key: value"},
      {"stage sft\n", "run.yaml:1: expected 'key: value' lines, got 'stage sft': write a colon and a space"},
      {"stage:sft\n", "as in 'stage: sft'"},
      {"stage: sft\n\tdataset: x\n", "run.yaml:2: not valid YAML (column 1): 'dataset: x' is indented by a tab: use spaces"},
      {"curriculum:\n\tlevels: [a]\n", "run.yaml:2: not valid YAML (column 1): 'levels: [a]' is indented by a tab"},
      {"stage: \"sft\ndataset: x\n", "run.yaml:1: not valid YAML (column 8): the quote that opens here is not closed"},
      {"stage: 'sft\ndataset: x\n", "run.yaml:1: not valid YAML (column 8): the quote that opens here is not closed"},
      {"stage: sft\ndataset: \"x\"y\n", "run.yaml:2: not valid YAML (column 13): the line does not continue"},
      {"stage: sft\nmodel_name_or_path: C: x\n",
       "run.yaml:2: not valid YAML (column 22): a second colon in 'model_name_or_path: C: x': put the value in quotes"},
      {"dataset: [a, b\nstage: sft\n", "a list has '[' but no ']'"},
      {"stage: sft\n  dataset: x\n",
       "run.yaml:2: not valid YAML (column 3): 'dataset: x' is indented deeper than the line before"},
      {"  stage: sft\ndataset: x\n", "run.yaml:2: not valid YAML: the line is indented less than the first"},
      {"dataset: *x\n",
       "run.yaml:1: not valid YAML (column 10): YAML takes a value that begins with '*' as a reference: put it in quotes"},
      {"dataset: @x\n", "run.yaml:1: not valid YAML (column 10): a value cannot begin with '@': put it in quotes"},
  };
  for (const auto& [text, message] : cases) EXPECT_CONTAINS(error_of_text(text), message) << text;
  std::string long_file = "stage: sft\n";
  for (int i = 0; i < 200000; ++i) long_file += "# a remark\n";
  EXPECT_CONTAINS(error_of_text(long_file + "dataset: b: c\n"),
                  "run.yaml:200002: not valid YAML (column 11): a second colon in 'dataset: b: c'");
  EXPECT_CONTAINS(error_of_text("\xFF\xFEs"), "run.yaml' is UTF-16: save it as UTF-8");
  EXPECT_CONTAINS(error_of_text(std::string_view("s\0t\0", 4)), "run.yaml' is UTF-16: save it as UTF-8");
  EXPECT_CONTAINS(error_of_text("version https://git-lfs.github.com/spec/v1\n"), "run.yaml' is a Git LFS pointer");
  EXPECT_EQ(load_text("default_system: \"a \\\" b\"\n").data.default_system, "a \" b");
  EXPECT_EQ(load_text("default_system: 'it''s'\n").data.default_system, "it's");
}

TEST(ConfigErrors, SayInPlainWordsWhatIsNoJson) {
  const Broken cases[] = {
      {"{'stage': 'sft'}", "run.json:1: not valid JSON (column 2): a single quote: JSON strings need double quotes"},
      {"{\n\"stage: \"sft\"}", "run.json:2: not valid JSON (column 10): found 'sft', expected ':': is a quote missing?"},
      {"{stage: \"sft\"}", "(column 2): found 'stage', expected a key in double quotes"},
      {"{\"stage\": \"sft\"\n \"dataset\": \"x\"}",
       "run.json:2: not valid JSON (column 2): found '\"dataset\"', expected ',' or '}': is a comma or a quote missing?"},
      {"{\"stage\" \"sft\"}", "(column 10): found '\"sft\"', expected ':'"},
      {"{\"stage\": sft}", "(column 11): found 'sft', expected a value: strings need double quotes"},
      {"{\"stage\": \"sft\"", "run.json:1: not valid JSON (column 16): the text ends too early"},
      {"{\"bf16\": True}", "(column 10): True is not JSON: write true"},
      {"{\"bf16\": true} // x", "more text after the end"},
      {"{\"stage\": \"s\nft\"}", "run.json:1: not valid JSON (column 13): a line break inside a string"},
      {"{\"output_dir\": \"C:\\path\"}", "'\\p' is not an escape: write \\\\ for a backslash"},
      {"", "run.json:1: not valid JSON (column 1): the text is empty"},
  };
  for (const auto& [text, message] : cases) EXPECT_CONTAINS(error_of_text(text, {}, Purpose::any, "run.json"), message) << text;
}

TEST(ConfigErrors, LocateMissingFiles) {
  EXPECT_EQ(error_of([] { load_run_config("/nowhere/run.yaml"); }), "cannot read /nowhere/run.yaml: there is no such file");
  EXPECT_CONTAINS(error_of([] { load_run_config("/tmp"); }), "is a folder");
  EXPECT_CONTAINS(error_of_text("output_dir: $QFT_NO_SUCH_VARIABLE/x\n"), "QFT_NO_SUCH_VARIABLE, which is not set");
  EXPECT_CONTAINS(error_of_text("output_dir: ${HOME/x\n"), "closing brace");
}

TEST(ConfigErrors, ExplainBadOverrides) {
  EXPECT_CONTAINS(error_of_text("", {"bf16"}), "command line: 'bf16' is not an override: write key=value");
  EXPECT_CONTAINS(error_of_text("", {"=3"}), "write key=value");
  EXPECT_CONTAINS(error_of_text("", {"lora_target=[a, b"}), "lacks its closing bracket");
  EXPECT_CONTAINS(error_of_text("", {"lora_target=[a, \"b]"}), "not valid YAML");
  EXPECT_CONTAINS(error_of_text("", {"prompt=a\xff"}), "not valid UTF-8");
}

struct Relation {
  const char* text;
  const char* part;
};

TEST(Relations, AreCheckedBetweenKeys) {
  const Relation relations[] = {
      {"bf16: true\nfp16: true\n", "run.yaml:1: bf16 and "},
      {"pure_bf16: true\nfp16: true\n", "exclude each other"},
      {"bf16: true\ncompute_dtype: float64\n", "they name different types"},
      {"deterministic: true\nstrategy: zero3\n", "run.yaml:2: strategy is zero3: use ddp"},
      {"deterministic: true\nbreadth_first_micro_batches: 2\n", "one micro-batch after another"},
      {"deterministic: true\noffload_optimizer: cpu\n", "exclude each other"},
      {"deterministic: true\noffload_param: cpu\n", "exclude each other"},
      {"cuda_graphs: true\nstrategy: zero3\n", "run.yaml:2: strategy is zero3, which shards them: use ddp or zero1"},
      {"cuda_graphs: true\nlora_dropout: 0.1\n", "is 0.1, which needs a new mask in every step"},
      {"cuda_graphs: true\nstrategy: zero3\ntensor_parallel: 2\n", "run.yaml:3: tensor_parallel is 2, so ranks exchange rows"},
      {"cuda_graphs: true\ntensor_parallel: 2\n", "run.yaml:2: tensor_parallel is 2, so ranks exchange rows inside each layer"},
      {"cuda_graphs: true\ncontext_parallel: 2\n", "remove cuda_graphs, or set context_parallel: 1"},
      {"cuda_graphs: true\noffload_optimizer: cpu\n", "exclude each other"},
      {"cuda_graphs: true\noffload_param: cpu\n", "exclude each other"},
      {"cuda_graphs: true\noffload_activations: cpu\n", "graphs are for small models"},
      {"eval_strategy: steps\n", "give eval_dataset, eval_pack or val_size"},
      {"do_eval: true\n", "no data to evaluate on"},
      {"do_predict: true\n", "no data to evaluate on"},
      {"do_predict: true\neval_dataset: a\n", "needs predict_with_generate"},
      {"val_size: 0.1\neval_dataset: a\ndataset: b\n", "val_size and "},
      {"val_size: 0.1\neval_pack: a\ndataset: b\n", "exclude each other"},
      {"val_size: 0.1\n", "no dataset or pack to take it from"},
      {"val_size: 1.5\ndataset: a\n", "expected a whole number of samples or a fraction below 1"},
      {"eval_dataset: a\neval_pack: b\n", "keep one of them"},
      {"mask_history: true\ntrain_on_prompt: true\n", "exclude each other"},
      {"neat_packing: true\npacking: false\n", "remove one"},
      {"stage: pt\nneat_packing: true\n", "needs stage sft"},
      {"stage: pt\nmask_history: true\n", "needs stage sft"},
      {"stage: pt\npredict_with_generate: true\n", "needs stage sft"},
      {"interleave_probs: 0.5,0.5\ndataset: a,b\n", "needs an interleaved mix_strategy"},
      {"mix_strategy: interleave_over\ninterleave_probs: 0.5,0.5\ndataset: a,b,c\n", "has 2 values, but "},
      {"finetuning_type: full\nuse_dora: true\n", "needs finetuning_type lora, but"},
      {"finetuning_type: full\nrank_pattern: {q_proj: 4}\n", "needs finetuning_type lora, but"},
      {"finetuning_type: full\nuse_rslora: true\n", "needs finetuning_type lora, but"},
      {"loss_scale: all\ntrain_on_prompt: false\n",
       "run.yaml:1: loss_scale is all, but run.yaml:2: train_on_prompt is false: remove one"},
      {"loss_scale: default+react\nmask_history: true\n", "remove one"},
      {"stage: dpo\nloss_scale: hermes\n", "gives the tokens of answers the same weight: remove it"},
      {"stage: pt\nloss_scale: last_round\n", "gives all tokens the same weight: remove it"},
      {"finetuning_type: freeze\npissa_init: true\n", "needs finetuning_type lora, but"},
      {"finetuning_type: full\nloraplus_lr_ratio: 16\n", "needs finetuning_type lora, but"},
      {"finetuning_type: full\nadditional_target: embed_tokens\n", "needs finetuning_type lora or oft"},
      {"finetuning_type: lora\nuse_llama_pro: true\n", "needs finetuning_type freeze"},
      {"finetuning_type: full\nadapter_name_or_path: a\n", "only lora and oft use adapters"},
      {"early_stopping_steps: 2\n", "needs load_best_model_at_end"},
      {"load_best_model_at_end: true\n", "eval_strategy is no and save_strategy is steps"},
      {"load_best_model_at_end: true\nsave_only_model: true\n", "remove one of them"},
      {"use_dft_loss: true\nuse_eaft_loss: true\n", "run.yaml:1: use_dft_loss and run.yaml:2: use_eaft_loss exclude each other"},
      {"use_asft_loss: true\nuse_eaft_loss: true\n", "exclude each other: a run has one loss"},
      {"stage: pt\nuse_eaft_loss: true\n", "needs stage sft"},
      {"eaft_alpha: -1\n", "expected a number of at least 0"},
      {"load_best_model_at_end: true\neval_strategy: steps\neval_steps: 30\nsave_steps: 100\nval_size: "
       "5\ndataset: a\n",
       "save_steps 100 is not a multiple of "},
      {"predict_with_generate: true\ncompute_accuracy: true\neval_dataset: a\n", "no token accuracy"},
      {"predict_with_generate: true\ntrain_on_prompt: true\neval_dataset: a\n", "the reference answer is unknown"},
      {"hub: nowhere\n", "huggingface"},
  };
  for (const Relation& relation : relations) {
    SCOPED_TRACE(relation.text);
    EXPECT_CONTAINS(error_of_text(relation.text), relation.part);
  }
}

TEST(Relations, HoldForEvaluationAtSaves) {
  const RunConfig c = load_text(
      "load_best_model_at_end: true\neval_strategy: steps\neval_steps: 0.05\nsave_steps: 0.1\nval_size: "
      "5\ndataset: a\n");
  EXPECT_TRUE(c.training.do_eval);
  EXPECT_EQ(c.training.metric_for_best_model, "loss");
  EXPECT_EQ(c.training.greater_is_better, false);
}

TEST(Relations, TheDirectionOfAMetricFollowsItsName) {
  const auto greater = [](const std::string& metric) {
    return load_text("metric_for_best_model: " + metric + "\n").training.greater_is_better;
  };
  for (const char* metric : {"loss", "eval_loss", "eval_my_set_loss", "perplexity"}) EXPECT_EQ(greater(metric), false) << metric;
  for (const char* metric : {"accuracy", "eval_rouge-l", "bleu-4", "rewards/margins"}) EXPECT_EQ(greater(metric), true) << metric;
  EXPECT_EQ(load_text("metric_for_best_model: accuracy\ngreater_is_better: false\n").training.greater_is_better, false);
}

TEST(Purposes, RefuseWhatTheProgramWouldNotActOn) {
  const std::string common = "model_name_or_path: m\npack: p\noutput_dir: o\nval_size: 2\n";
  const std::string text = common + "stage: dpo\npref_loss: kto_pair\n";
  EXPECT_CONTAINS(error_of_text(text, {}, Purpose::train),
                  "run.yaml:6: pref_loss is \"kto_pair\", which is not implemented yet: ");
  EXPECT_NO_THROW(load_text(text, {}, Purpose::generate));
}

TEST(Purposes, TrainUnlessDoEvalOrDoPredictStandForThemselves) {
  const std::string common = "model_name_or_path: m\neval_dataset: a\noutput_dir: o\npredict_with_generate: true\n";
  const std::string with_data = "model_name_or_path: m\ndataset: a\nval_size: 2\noutput_dir: o\n";
  EXPECT_TRUE(trains(load_text(with_data, {}, Purpose::train)));
  EXPECT_TRUE(trains(load_text(with_data + "eval_strategy: steps\n", {}, Purpose::train)));
  EXPECT_TRUE(trains(load_text(with_data + "do_train: true\ndo_eval: true\n", {}, Purpose::train)));
  EXPECT_FALSE(trains(load_text(with_data + "do_eval: true\n", {}, Purpose::train)));
  const RunConfig predicts = load_text(common + "do_predict: true\n", {}, Purpose::train);
  EXPECT_FALSE(trains(predicts));
  EXPECT_CONTAINS(predicts.notes.at(0), "run.yaml:5: do_predict without do_train: nothing is trained");
  EXPECT_CONTAINS(error_of_text(common + "do_predict: true\ndo_train: true\n", {}, Purpose::train),
                  "qft train needs dataset or pack");
  EXPECT_CONTAINS(error_of_text(with_data + "do_train: false\n", {}, Purpose::train),
                  "run.yaml:5: do_train is false, and neither do_eval nor do_predict is true");
}

TEST(Purposes, NoteWhatCountsInThem) {
  const std::string common = "model_name_or_path: m\npack: p\noutput_dir: o\nwarmup_ratio: 0.1\nwarmup_steps: 5\npacking: true\n";
  const auto notes = [&](const std::string& line, Purpose purpose) {
    const auto list = load_text(common + line + "\n", {}, purpose).notes;
    return fmt::format("{}", fmt::join(list, "\n"));
  };
  EXPECT_CONTAINS(notes("", Purpose::train), "warmup_steps overrides");
  EXPECT_CONTAINS(notes("", Purpose::train), "run.yaml:6: packing: samples in one row");
  EXPECT_EQ(notes("", Purpose::eval), "");
  EXPECT_CONTAINS(notes("infer_dtype: float32", Purpose::train), "run.yaml:7: infer_dtype has no effect in training");
  EXPECT_EQ(notes("infer_dtype: float32", Purpose::eval), "");
  EXPECT_CONTAINS(notes("infer_dtype: float32\nbf16: true", Purpose::eval), "run.yaml:7: infer_dtype overrides ");
  EXPECT_CONTAINS(notes("infer_dtype: float32\nbf16: true", Purpose::eval), "run.yaml:8: bf16, which has no effect");
  EXPECT_CONTAINS(notes("pissa_convert: true", Purpose::train), "pissa_convert has no effect: pissa_init is false");
  EXPECT_EQ(notes("pissa_convert: true\npissa_init: true", Purpose::train).find("pissa_convert"), std::string::npos);
}

TEST(Purposes, GenerateAnswersInEvaluationAndAfterTraining) {
  const std::string common = "model_name_or_path: m\npack: p\nval_size: 2\npredict_with_generate: true\n";
  const std::string with_output = common + "output_dir: o\n";
  EXPECT_NO_THROW(load_text(with_output, {}, Purpose::eval));
  EXPECT_CONTAINS(error_of_text(common, {}, Purpose::eval), "predict_with_generate needs output_dir");
  EXPECT_CONTAINS(error_of_text(with_output, {}, Purpose::train),
                  "run.yaml:4: predict_with_generate is true, but nothing is evaluated: add do_predict");
  EXPECT_TRUE(load_text(with_output + "do_train: true\ndo_predict: true\n", {}, Purpose::train).notes.empty());
  EXPECT_TRUE(load_text(with_output + "eval_strategy: steps\n", {}, Purpose::train).notes.empty());
  EXPECT_CONTAINS(error_of_text(with_output + "do_eval: true\n", {}, Purpose::train),
                  "a run without training only reports the loss");
  EXPECT_CONTAINS(error_of_text("model_name_or_path: m\npack: p\nval_size: 2\noutput_dir: o\nstage: pt\ndo_predict: true\n", {},
                                Purpose::train),
                  "do_predict needs stage sft (answers), rm (scores), seq_cls (labels)");
}

TEST(Purposes, AskForWhatTheProgramNeeds) {
  const std::string model = "model_name_or_path: m\n";
  EXPECT_EQ(error_of_text("bf16: true\n", {}, Purpose::train), "run.yaml: qft train needs model_name_or_path");
  EXPECT_CONTAINS(error_of_text(model, {}, Purpose::train), "needs dataset or pack");
  EXPECT_CONTAINS(error_of_text(model + "pack: p\n", {}, Purpose::train), "needs output_dir");
  EXPECT_CONTAINS(error_of_text(model + "pack: p\noutput_dir: o\ndo_train: false\n", {}, Purpose::train), "qft eval");
  for (const Purpose purpose : {Purpose::train, Purpose::eval, Purpose::plan})
    EXPECT_CONTAINS(error_of_text(model + "pack: p\noutput_dir: o\nstage: dpo\npref_loss: kto_pair\n", {}, purpose),
                    "pref_loss is \"kto_pair\", which is not implemented yet");
  EXPECT_NO_THROW(load_text(model + "pack: p\noutput_dir: o\nstage: dpo\n", {}, Purpose::train));
  const std::string reward = model + "pack: p\noutput_dir: o\nstage: rm\n";
  EXPECT_NO_THROW(load_text(reward, {}, Purpose::train));
  EXPECT_NO_THROW(load_text(reward + "val_size: 2\ndo_predict: true\n", {}, Purpose::train));
  EXPECT_CONTAINS(error_of_text(reward + "packing: true\n", {}, Purpose::train), "remove packing");
  EXPECT_CONTAINS(error_of_text(reward + "predict_logprobs: f\n", {}, Purpose::eval), "qft score writes scores");
  EXPECT_CONTAINS(error_of_text(model + "stage: rm\n", {}, Purpose::generate), "a reward model does not write answers");
  EXPECT_NO_THROW(load_text(model + "pack: p\noutput_dir: o\npref_loss: kto_pair\n", {}, Purpose::train));
  EXPECT_NO_THROW(
      load_text(model + "pack: p\noutput_dir: o\nstage: dpo\ndpo_label_smoothing: 0.1\nld_alpha: 0.5\n", {}, Purpose::train));
  EXPECT_CONTAINS(
      error_of_text(model + "pack: p\noutput_dir: o\nstage: dpo\npref_loss: ipo\ndpo_label_smoothing: 0.1\n", {}, Purpose::train),
      "dpo_label_smoothing needs pref_loss sigmoid or cpo");
  EXPECT_NO_THROW(load_text(model + "pack: p\noutput_dir: o\nstage: dpo\nref_model: m\n", {}, Purpose::train));
  const std::string kto = model + "pack: p\noutput_dir: o\nstage: kto\nkto_chosen_weight: 1.3\n";
  EXPECT_TRUE(load_text(kto, {}, Purpose::train).notes.empty());
  EXPECT_CONTAINS(error_of_text(kto + "packing: true\n", {}, Purpose::train), "remove packing");
  EXPECT_CONTAINS(
      error_of_text(model + "pack: p\noutput_dir: o\nstage: dpo\npref_loss: simpo\npacking: true\n", {}, Purpose::train),
      "remove packing");
  EXPECT_CONTAINS(error_of_text(model, {}, Purpose::eval), "qft eval needs eval_dataset");
  EXPECT_CONTAINS(error_of_text(model, {}, Purpose::export_model), "needs export_dir");
  EXPECT_CONTAINS(error_of_text(model, {}, Purpose::pack), "needs dataset or eval_dataset");
  EXPECT_CONTAINS(error_of_text("dataset: a\n", {}, Purpose::pack), "tokenizer_name_or_path");
  EXPECT_CONTAINS(error_of_text("", {}, Purpose::generate), "needs model_name_or_path");
  EXPECT_CONTAINS(error_of_text("", {}, Purpose::plan), "needs model_name_or_path");
  EXPECT_NO_THROW(load_text("", {}, Purpose::check));
  EXPECT_NO_THROW(load_text("tokenizer_name_or_path: t\ndataset: a\nstrategy: zero3\n", {}, Purpose::pack));
}

}  // namespace
}  // namespace qft::config
