#include "qft/config/finetuning_args.h"

namespace qft::config {

void FinetuningArgs::visit(const FieldVisitor& field) {
  field(
      Field("stage",
            "what is learned: raw text, instructions, preference pairs (dpo, rm), answers marked good or bad (kto) or labels of "
            "texts (seq_cls)")
          .one_of({"pt", "sft", "dpo", "rm", "kto", "seq_cls"})
          .advise("other methods, such as ppo, are not implemented"),
      &stage);
  field(Field("finetuning_type", "which weights are trained")
            .one_of({"lora", "oft", "full", "freeze"})
            .advise("other methods are not implemented: lora is the nearest"),
        &finetuning_type);
  field(Field("lora_rank", "rank of the LoRA matrices").at_least(1), &lora_rank);
  field(Field("lora_alpha", "LoRA is scaled by lora_alpha / lora_rank").at_least(0).shown_default("lora_rank * 2"), &lora_alpha);
  field(Field("lora_dropout", "dropout before the LoRA matrices").in_half_open(0, 1), &lora_dropout);
  field(
      Field("lora_target",
            "linear layers that get LoRA matrices, by their names, the ends of their paths, or one regular expression for whole "
            "names; all: every one except the head and routers of experts"),
      &lora_target);
  field(Field("lora_target_parameters",
              "experts.gate_up_proj, experts.down_proj: matrices for the fused weights of all experts, as newer PEFT has them, "
              "rather than for each linear"),
        &lora_target_parameters);
  field(Field("rank_pattern", "other ranks of some layers: a mapping of regular expressions for the ends of names to ranks"),
        &rank_pattern);
  field(Field("alpha_pattern", "other values of lora_alpha of some layers, likewise"), &alpha_pattern);
  field(Field("additional_target", "modules trained in full and saved beside the adapter"), &additional_target);
  field(Field("use_rslora", "scale by lora_alpha over the square root of lora_rank"), &use_rslora);
  field(Field("use_dora", "DoRA: also train the magnitude of each output, a row of the weight"), &use_dora);
  field(Field("loraplus_lr_ratio", "LoRA+: learning rate of the B matrices over that of A").above(0), &loraplus_lr_ratio);
  field(Field("loraplus_lr_embedding", "LoRA+: learning rate of LoRA on embeddings").above(0), &loraplus_lr_embedding);
  field(
      Field("pissa_init", "PiSSA: start from the principal singular vectors of each weight, and train beside what is left of it"),
      &pissa_init);
  field(Field("pissa_iter", "PiSSA: iterations of the fast SVD; -1: the exact one").at_least(-1), &pissa_iter);
  field(Field("pissa_convert", "PiSSA: save as a plain LoRA adapter of twice the rank, for the model's own weights"),
        &pissa_convert);
  field(
      Field("oft_rank", "OFT: blocks into which the inputs of a linear are cut, each turned by a rotation of its own; 0: by size")
          .at_least(0),
      &oft_rank);
  field(Field("oft_block_size", "OFT: size of these blocks; 0: by number").at_least(0), &oft_block_size);
  field(Field("oft_target", "linear layers whose inputs OFT turns, named as lora_target names them"), &oft_target);
  field(Field("module_dropout", "OFT: PEFT has no use for it, so it must be 0").in_half_open(0, 1), &module_dropout);
  field(Field("use_cayley_neumann", "OFT: rotations by a series, faster and not quite orthogonal; false: by Cayley's transform"),
        &use_cayley_neumann);
  field(Field("num_cayley_neumann_terms", "OFT: terms of that series").in(2, 64), &num_cayley_neumann_terms);
  field(Field("block_share", "OFT: one rotation for all blocks of a linear's inputs"), &block_share);
  field(Field("coft", "OFT: limit how far rotations go (not implemented)"), &coft);
  field(Field("create_new_adapter", "merge the loaded adapters and train a new one"), &create_new_adapter);
  field(Field("freeze_trainable_layers", "freeze: train the last n layers, the first n if negative"), &freeze_trainable_layers);
  field(Field("freeze_trainable_modules", "freeze: modules trained in these layers"), &freeze_trainable_modules);
  field(Field("freeze_extra_modules", "freeze: modules outside the layers that are trained too"), &freeze_extra_modules);
  field(Field("use_llama_pro", "freeze: train the freeze_trainable_layers layers that LLaMA-Pro's expansion has put in, evenly"),
        &use_llama_pro);
  field(
      Field("pref_loss", "stage dpo: the loss of a pair").one_of({"sigmoid", "hinge", "ipo", "kto_pair", "orpo", "simpo", "cpo"}),
      &pref_loss);
  field(Field("pref_beta",
              "stages dpo, kto: factor of the reward (beta): the larger, the stronger a difference of log-probabilities counts")
            .above(0),
        &pref_beta);
  field(Field("pref_ftx", "stages dpo, kto: weight of the chosen answer's own loss, added to the pair's").at_least(0), &pref_ftx);
  field(Field("simpo_gamma", "pref_loss simpo: the margin by which the chosen answer's reward is to be higher"), &simpo_gamma);
  field(Field("rpo_alpha",
              "stage dpo: weight of the mean loss of a chosen answer's label, added to the pairs' (RPO; of CPO: cpo_alpha)")
            .at_least(0),
        &rpo_alpha);
  field(Field("dpo_label_smoothing",
              "pref_loss sigmoid and cpo: the share of the pairs whose answers are taken to be interchanged (cDPO)")
            .in_half_open(0, 0.5),
        &dpo_label_smoothing);
  field(Field("ld_alpha",
              "stage dpo: weight of the labels by which an answer is longer than the other one of its pair (LD-DPO); absent: 1")
            .at_least(0),
        &ld_alpha);
  field(Field("pref_bco_weight",
              "stage dpo with a reference: weight of BCO's loss, which compares each answer's reward with the mean of all so far")
            .at_least(0),
        &pref_bco_weight);
  field(Field("kto_chosen_weight", "stage kto: weight of answers that are liked").at_least(0), &kto_chosen_weight);
  field(Field("kto_rejected_weight", "stage kto: weight of answers that are not").at_least(0), &kto_rejected_weight);
  field(Field("num_labels", "stage seq_cls: how many numbers the head gives of a text").in(1, 1000000), &num_labels);
  field(Field("problem_type", "stage seq_cls: one label a text, any number of labels, or a number for each (regression)")
            .one_of({"single_label_classification", "multi_label_classification", "regression"})
            .shown_default("regression for one label, else single_label_classification"),
        &problem_type);
  field(Field("ref_model", "stages dpo and kto, use_asft_loss: the model to compare with (folder, or name on a hub)")
            .path()
            .shown_default("with LoRA the model without the adapter, else the one that training starts from"),
        &ref_model);
  field(Field("ref_model_adapters", "an adapter on ref_model, or on model_name_or_path where that is absent").path(),
        &ref_model_adapters);
  field(
      Field("precompute_ref_log_probs",
            "stages dpo and kto: compute the reference's log-probabilities before the first step, once for all runs on the pack, "
            "in a file beside it; training then holds one model only"),
      &precompute_ref_log_probs);
  field(Field("share_prompts", "stages dpo and rm: compute what both sequences of a pair begin with once, not for each of them"),
        &share_prompts);
  field(Field("use_dft_loss", "DFT: each label counts its own probability"), &use_dft_loss);
  field(
      Field("use_eaft_loss", "EAFT: each label counts the entropy of the 20 likeliest tokens over 3, to the power of eaft_alpha"),
      &use_eaft_loss);
  field(Field("eaft_alpha", "EAFT: the larger, the less labels count where the model is sure").at_least(0), &eaft_alpha);
  field(Field("use_asft_loss", "ASFT: as use_dft_loss, with the KL divergence from the model that training starts from added"),
        &use_asft_loss);
  field(Field("asft_alpha", "ASFT: weight of that divergence").at_least(0), &asft_alpha);
  field(Field("disable_shuffling", "keep the samples in source order"), &disable_shuffling);
  field(Field("early_stopping_steps", "stop after this many evaluations without a better metric").at_least(1),
        &early_stopping_steps);
  field(Field("compute_accuracy", "report the token accuracy in evaluation"), &compute_accuracy);
}

}  // namespace qft::config
