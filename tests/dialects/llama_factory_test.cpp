// Keys of LLaMA-Factory and transformers that qft renames, refuses or ignores.
#include <string>

#include "dialect_files.h"

namespace qft::dialects {
namespace {

TEST(LlamaFactory, NamesKeysWithoutEffectInOneLine) {
  const RunConfig c = load_text("overwrite_cache: true\ndataloader_num_workers: 4\n");
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_EQ(c.notes[0], "keys without effect in qft: overwrite_cache, dataloader_num_workers (qft help KEY explains them)");
}

TEST(LlamaFactory, ReadsTheOtherKindsOfLlamaFactoryFiles) {
  const std::string common = "model_name_or_path: m\ntrust_remote_code: true\n";
  const std::string output =
      "output_dir: saves/x\nlogging_steps: 10\nsave_steps: 500\nplot_loss: true\noverwrite_output_dir: true\n"
      "save_only_model: false\nreport_to: none  # choices: [none, wandb]\nddp_timeout: 180000000\n"
      "resume_from_checkpoint: null\nlearning_rate: 1.0e-4\nbf16: true\ndataloader_num_workers: 4\n";
  const RunConfig pretrain =
      load_text(common + output + "stage: pt\ndo_train: true\ndataset: c4_demo\nmax_samples: 1000\n", {}, Purpose::train);
  EXPECT_EQ(pretrain.data.packing, true) << "stage pt packs unless told otherwise";
  const RunConfig preference = load_text(common + output +
                                             "stage: dpo\npref_beta: 0.1\npref_loss: sigmoid\ndataset: dpo_en_demo\n"
                                             "template: qwen3_nothink\n",
                                         {}, Purpose::pack);
  EXPECT_EQ(preference.finetuning.stage, "dpo");
  const RunConfig merge = load_text(common +
                                        "adapter_name_or_path: saves/a,saves/b\nexport_dir: out\nexport_size: 2\n"
                                        "export_device: cpu\nexport_legacy_format: false\ntemplate: qwen\n",
                                    {}, Purpose::export_model);
  EXPECT_EQ(merge.model.adapter_name_or_path, (std::vector<std::string>{"saves/a", "saves/b"}));
  const RunConfig chat = load_text(common + "template: qwen\ninfer_backend: huggingface\n", {}, Purpose::generate);
  EXPECT_TRUE(chat.generate.do_sample);
  const RunConfig predict = load_text(common +
                                      "stage: sft\ndo_predict: true\nfinetuning_type: lora\neval_dataset: identity\n"
                                      "predict_with_generate: true\noverwrite_cache: true\nper_device_eval_batch_size: 1\n");
  EXPECT_TRUE(predict.eval.predict_with_generate);
  const RunConfig freeze = load_text(common + output +
                                     "dataset: a\nfinetuning_type: freeze\n"
                                     "freeze_trainable_layers: 8\nfreeze_trainable_modules: all\n");
  EXPECT_EQ(freeze.finetuning.freeze_trainable_layers, 8);
}

TEST(LlamaFactory, NamesOfOptimizersMeanOptim) {
  EXPECT_EQ(load_text("use_apollo: true\napollo_layerwise: true\n").training.optim, "apollo_adamw");
  EXPECT_EQ(load_text("use_galore: true\ngalore_rank: 8\n").training.galore_rank, 8);
  EXPECT_EQ(load_text("use_muon: true\n").training.optim, "muon");
  EXPECT_EQ(load_text("use_muon: false\nadafactor: true\n").training.optim, "adafactor");
  EXPECT_EQ(load_text("evaluation_strategy: no").training.eval_strategy, "no") << "the older name";
}

TEST(LlamaFactory, RefusesWhatWouldGiveAnotherResult) {
  struct Refusal {
    const char *text, *part;
  };
  const Refusal refusals[] = {
      {"use_badam: true\n", "is refused: qft help optim lists the optimizers that qft has"},
      {"num_beams: 4\n", "beam search is not implemented"},
      {"shift_attn: true\n", "is refused"},
      {"hf_hub_token: hf_secret\n", "it is refused: checkpoints contain a copy"},
      {"finetuning_type: oft\ncoft: true\n", "run.yaml:2: coft: 'true' is refused: it changes weights in each forward pass"},
      {"module_dropout: 0.1\nfinetuning_type: oft\n", "module_dropout: '0.1' is refused: PEFT's OFT ignores it"},
      {"use_galore: true\ngalore_target: q_proj\n", "galore_target: 'q_proj' is refused: only all is implemented"},
      {"use_apollo: true\napollo_target: [q_proj, k_proj]\n", "apollo_target: a list is refused: only all is implemented"},
      {"deepspeed: /dev/zero\n", "/dev/zero is a pipe or a device"},
      {"eval_strategy: \"no\"\nevaluation_strategy: steps\n",
       "run.yaml:2: evaluation_strategy is 'steps', but run.yaml:1: eval_strategy is "},
  };
  for (const Refusal& refusal : refusals) EXPECT_CONTAINS(error_of_text(refusal.text), refusal.part);
}

TEST(LlamaFactory, RefusesNothingThatAsksForNothing) {
  EXPECT_TRUE(
      load_text("use_unsloth: false\nshift_attn: no\neval_num_beams: 1\npush_to_hub: off\ncoft: false\nmodule_dropout: 0.0\n"
                "galore_target: all\napollo_target: [all]\n")
          .notes.empty());
}

TEST(LlamaFactory, NotesWhatHasNoEffectOnce) {
  const RunConfig c = load_text("use_swanlab: true\n");
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_CONTAINS(c.notes[0], "run.yaml:1: use_swanlab has no effect in qft: metrics go to trainer_log.jsonl");
  EXPECT_CONTAINS(load_text("loraplus_lr_embedding: 1.0e-6\n").notes.at(0), "qft does not put LoRA on embeddings");
}

}  // namespace
}  // namespace qft::dialects
