#include "qft/config/finetuning_args.h"

#include "qft/config/stages.h"

namespace qft::config {
namespace {

std::vector<std::string_view> stage_choices() {
  std::vector<std::string_view> names;
  for (const Stage& stage : stages()) names.push_back(stage.name);
  return names;
}

/// Returns "what to learn: raw text (pt), instructions (sft) or ...". Neighbours that learn the same share brackets.
std::string stage_help() {
  std::vector<std::string> parts;
  std::string_view last;
  for (const Stage& stage : stages()) {
    if (stage.learns == last)
      parts.back().insert(parts.back().size() - 1, ", " + std::string(stage.name));
    else
      parts.push_back(std::string(last = stage.learns) + " (" + std::string(stage.name) + ")");
  }
  std::string text = "what to learn: ";
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : i + 1 == parts.size() ? " or " : ", ") + parts[i];
  return text;
}

}  // namespace

void FinetuningArgs::visit(const FieldVisitor& field) {
  static const std::string kStageHelp = stage_help();
  field(Field("stage", kStageHelp).one_of(stage_choices()).advise("other stages, such as ppo, are not implemented"), &stage);
  field(Field("finetuning_type", "which weights train")
            .one_of({"lora", "oft", "full", "freeze"})
            .advise("other methods are not implemented: lora is the nearest"),
        &finetuning_type);
  field(Field("lora_rank", "rank of the LoRA matrices").at_least(1), &lora_rank);
  field(Field("lora_alpha", "LoRA is scaled by lora_alpha / lora_rank").at_least(0).shown_default("lora_rank * 2"), &lora_alpha);
  field(Field("lora_dropout", "dropout before the LoRA matrices").in_half_open(0, 1), &lora_dropout);
  field(Field("lora_target",
              "linear layers that get LoRA matrices: names, ends of paths, or one regular expression for whole paths; all: all "
              "linears except the head and the routers of experts"),
        &lora_target);
  field(Field("lora_target_parameters",
              "experts.gate_up_proj, experts.down_proj: LoRA matrices for the fused weights of all experts, as in newer PEFT, "
              "instead of for each linear"),
        &lora_target_parameters);
  field(Field("rank_pattern", "ranks for some layers: a mapping from regular expressions for ends of names to ranks"),
        &rank_pattern);
  field(Field("alpha_pattern", "lora_alpha for some layers: a mapping like rank_pattern"), &alpha_pattern);
  field(Field("additional_target", "modules to train in full and save with the adapter"), &additional_target);
  field(Field("use_rslora", "scale LoRA by lora_alpha / sqrt(lora_rank)"), &use_rslora);
  field(Field("use_dora", "DoRA: also train the magnitude of each row of the weight"), &use_dora);
  field(Field("loraplus_lr_ratio", "LoRA+: ratio of the learning rates of B and A").above(0), &loraplus_lr_ratio);
  field(
      Field("pissa_init", "PiSSA: initialise LoRA from each weight's principal singular vectors and freeze the residual weight"),
      &pissa_init);
  field(Field("pissa_iter", "PiSSA: iterations of the fast SVD; -1: exact SVD").at_least(-1), &pissa_iter);
  field(Field("pissa_convert", "PiSSA: save as a plain LoRA adapter of twice the rank that fits the original weights"),
        &pissa_convert);
  field(
      Field("oft_rank", "OFT: number of blocks of a linear's inputs, each with its own rotation; 0: follows from oft_block_size")
          .at_least(0),
      &oft_rank);
  field(Field("oft_block_size", "OFT: size of a block; 0: follows from oft_rank").at_least(0), &oft_block_size);
  field(Field("oft_target", "OFT: linear layers that get rotations, named as in lora_target"), &oft_target);
  field(Field("use_cayley_neumann",
              "OFT: compute rotations by a Neumann series, faster but not exactly orthogonal; false: by the exact Cayley "
              "transform"),
        &use_cayley_neumann);
  field(Field("num_cayley_neumann_terms", "OFT: terms of the Neumann series").in(2, 64), &num_cayley_neumann_terms);
  field(Field("block_share", "OFT: one rotation for all blocks of a linear's inputs"), &block_share);
  field(Field("create_new_adapter", "merge the loaded adapters and train a new one"), &create_new_adapter);
  field(Field("freeze_trainable_layers", "freeze: train the last n layers; if negative, the first n"), &freeze_trainable_layers);
  field(Field("freeze_trainable_modules", "freeze: modules to train in these layers"), &freeze_trainable_modules);
  field(Field("freeze_extra_modules", "freeze: modules outside the layers to train too"), &freeze_extra_modules);
  field(Field("use_llama_pro", "freeze: train the freeze_trainable_layers layers that LLaMA-Pro's expansion inserted evenly"),
        &use_llama_pro);
  field(
      Field("pref_loss", "stage dpo: the loss of a pair").one_of({"sigmoid", "hinge", "ipo", "kto_pair", "orpo", "simpo", "cpo"}),
      &pref_loss);
  field(Field("pref_beta",
              "stages dpo, kto: beta, the factor of the reward: larger values weigh differences of log-probabilities more")
            .above(0),
        &pref_beta);
  field(Field("pref_ftx", "stages dpo, kto: weight of the chosen answer's SFT loss, added to the preference loss").at_least(0),
        &pref_ftx);
  field(Field("simpo_gamma", "pref_loss simpo: target margin between the chosen and the rejected answer's rewards"),
        &simpo_gamma);
  field(Field("rpo_alpha",
              "stage dpo: weight of the mean loss per label of the chosen answers, added to the preference loss (RPO; cpo_alpha "
              "in CPO)")
            .at_least(0),
        &rpo_alpha);
  field(Field("dpo_label_smoothing", "pref_loss sigmoid and cpo: assumed share of pairs with swapped answers (cDPO)")
            .in_half_open(0, 0.5),
        &dpo_label_smoothing);
  field(Field("ld_alpha",
              "stage dpo: weight of the labels of an answer beyond the length of the pair's other answer (LD-DPO); absent: 1")
            .at_least(0),
        &ld_alpha);
  field(Field("pref_bco_weight",
              "stage dpo with a reference: weight of the BCO loss, which compares each answer's reward with the running mean")
            .at_least(0),
        &pref_bco_weight);
  field(Field("kto_chosen_weight", "stage kto: weight of desirable answers").at_least(0), &kto_chosen_weight);
  field(Field("kto_rejected_weight", "stage kto: weight of undesirable answers").at_least(0), &kto_rejected_weight);
  field(Field("num_labels", "stage seq_cls: number of outputs of the head").in(1, 1000000), &num_labels);
  field(Field("problem_type", "stage seq_cls: one label per text, several labels per text, or numbers (regression)")
            .one_of({"single_label_classification", "multi_label_classification", "regression"})
            .shown_default("regression for one label, else single_label_classification"),
        &problem_type);
  field(Field("embedding_loss",
              "stage embedding: the loss. infonce: the positive among all documents; cosine_similarity: the label is the pair's "
              "similarity; contrastive, online_contrastive: the label is 1 for near pairs, 0 for far ones")
            .one_of({"infonce", "cosine_similarity", "contrastive", "online_contrastive"}),
        &embedding_loss);
  field(Field("infonce_temperature", "infonce: divisor of the similarities; smaller values weigh near negatives more").above(0),
        &infonce_temperature);
  field(Field("infonce_use_batch",
              "infonce: the negatives of an anchor are all documents of the global batch; false: only its own negatives"),
        &infonce_use_batch);
  field(Field("infonce_hard_negatives",
              "infonce: number of negatives per record: more are cut, fewer are repeated in turn; absent: all")
            .at_least(1)
            .at_most(10000),
        &infonce_hard_negatives);
  field(
      Field("infonce_mask_fake_negative",
            "infonce: leave out documents that are nearer to the anchor than its positive by more than infonce_fake_neg_margin"),
      &infonce_mask_fake_negative);
  field(
      Field("infonce_fake_neg_margin", "infonce_mask_fake_negative: the margin, a difference of cosine similarities").at_least(0),
      &infonce_fake_neg_margin);
  field(Field("infonce_mask_duplicates", "infonce: leave out documents with the same text as the anchor's positive"),
        &infonce_mask_duplicates);
  field(Field("infonce_include_qq", "infonce: the other anchors of the batch are negatives too"), &infonce_include_qq);
  field(Field("infonce_include_dd", "infonce: the softmax also has the similarities of the positive with the other documents"),
        &infonce_include_dd);
  field(Field("contrastive_margin", "contrastive losses: far pairs with a distance (1 - cosine) above this add no loss").above(0),
        &contrastive_margin);
  field(
      Field(
          "mrl_dims",
          "stage embedding: Matryoshka: a mapping from widths to weights; trains the vectors' first numbers too. The full width "
          "trains only if it is listed"),
      &mrl_dims);
  field(
      Field("reranker_type",
            "stage reranker: classification: a head gives the score; generative: the logit of reranker_positive_token minus that "
            "of reranker_negative_token")
          .one_of({"classification", "generative"}),
      &reranker_type);
  field(Field("reranker_loss",
              "stage reranker: pointwise: a yes or no for each document; listwise: the relevant document among the others of its "
              "query")
            .one_of({"pointwise", "listwise"}),
        &reranker_loss);
  field(Field("listwise_temperature", "listwise: divisor of the scores").above(0), &listwise_temperature);
  field(Field("listwise_min_group_size", "listwise: groups with fewer documents have no loss").at_least(2),
        &listwise_min_group_size);
  field(Field("reranker_positive_token", "generative rerankers: the answer for relevant documents, one token")
            .shown_default("that of the model's 1_LogitScore, else yes"),
        &reranker_positive_token);
  field(Field("reranker_negative_token", "generative rerankers: the answer for other documents, one token")
            .shown_default("that of the model's 1_LogitScore, else no"),
        &reranker_negative_token);
  field(Field("max_positive_samples",
              "stage reranker: relevant documents that are drawn from each record in each epoch, each with other documents")
            .at_least(1)
            .at_most(1000),
        &max_positive_samples);
  field(Field("max_negative_samples", "stage reranker: other documents that are drawn for each relevant one")
            .at_least(1)
            .at_most(10000),
        &max_negative_samples);
  field(Field("ref_model", "stages dpo and kto, use_asft_loss: the reference model (folder, or name on a hub)")
            .path()
            .shown_default("with LoRA the model without the adapter, else the initial model"),
        &ref_model);
  field(Field("ref_model_adapters", "adapter for ref_model, or for model_name_or_path if ref_model is absent").path(),
        &ref_model_adapters);
  field(
      Field("precompute_ref_log_probs",
            "stages dpo and kto: compute the reference's log-probabilities before the first step and keep them in a file beside "
            "the pack for later runs; training then holds only one model"),
      &precompute_ref_log_probs);
  field(Field("share_prompts", "stages dpo and rm: compute the prompt of a pair once for both answers"), &share_prompts);
  field(Field("use_dft_loss", "DFT: weight the loss of each label by its probability"), &use_dft_loss);
  field(
      Field("use_eaft_loss", "EAFT: weight the loss of each label by (entropy of the 20 most probable tokens / 3) ^ eaft_alpha"),
      &use_eaft_loss);
  field(Field("eaft_alpha", "EAFT: larger values reduce the weight of labels at which the model is certain").at_least(0),
        &eaft_alpha);
  field(Field("use_asft_loss", "ASFT: like use_dft_loss, plus the KL divergence from the initial model"), &use_asft_loss);
  field(Field("asft_alpha", "ASFT: weight of the KL divergence").at_least(0), &asft_alpha);
  field(Field("disable_shuffling", "keep the samples in source order"), &disable_shuffling);
  field(Field("early_stopping_steps", "stop after this number of evaluations without a better metric").at_least(1),
        &early_stopping_steps);
  field(Field("compute_accuracy", "report token accuracy in evaluations"), &compute_accuracy);
}

}  // namespace qft::config
