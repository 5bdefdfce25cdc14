#include "qft/config/model_args.h"

namespace qft::config {

void ModelArgs::visit(const FieldVisitor& field) {
  field(Field("model_name_or_path", "folder of the model in Hugging Face layout, or its name on a hub: owner/name").path(),
        &model_name_or_path);
  field(Field("model_revision", "branch, tag or commit of the model on its hub").shown_default("the hub's default branch"),
        &model_revision);
  field(Field("hub",
              "where names of models and datasets are looked up; auto: modelscope with USE_MODELSCOPE_HUB=1, else huggingface")
            .one_of({"auto", "huggingface", "modelscope"}),
        &hub);
  field(Field("tokenizer_name_or_path", "folder of the tokenizer's files").path().shown_default("model_name_or_path"),
        &tokenizer_name_or_path);
  field(Field("adapter_name_or_path",
              "LoRA adapters to load: folders, or names on a hub; all but the last are merged, which training continues")
            .path(),
        &adapter_name_or_path);
  field(Field("adapter_folder", "sub-folder of adapter_name_or_path that holds the adapter"), &adapter_folder);
  field(
      Field("follow_links",
            "follow links of files out of their folder, as of weights that lie in a store; who made a link chooses what is read"),
      &follow_links);
  field(Field("stage_to", "folder on each node's own disk, to which model, adapters, packs and data are copied over MPI, once")
            .path(),
        &stage_to);
  field(Field("stage_limit", "GB that stage_to may hold: what was used longest ago goes first").above(0), &stage_limit);
  field(Field("infer_dtype",
              "type of weights and compute in eval, generate, chat and predict, and of an export; auto: the model's own")
            .one_of({"auto", "float16", "bfloat16", "float32"}),
        &infer_dtype);
  field(Field("quantization_bit", "bits of the frozen linears of the layers: 4 or 8; they are quantised as they are read")
            .in(4, 8)
            .shown_default("weights stay as computed with"),
        &quantization_bit);
  field(
      Field("quantization_method", "bnb: nf4 or fp4 in 4 bits, int8 in 8; with 8 bits also int8 or fp8 by name")
          .one_of({"bnb", "int8", "fp8"})
          .advise(
              "hqq and eetq are not implemented; a model that GPTQ, AWQ, bitsandbytes or fp8 quantised is used as it is, without "
              "these keys"),
      &quantization_method);
  field(Field("quantization_type", "4 bits: what their codes stand for").one_of({"nf4", "fp4"}), &quantization_type);
  field(Field("double_quantization", "4 bits: the scales are quantised too"), &double_quantization);
  field(Field("moe_aux_loss_coef", "weight of the loss that keeps a model's experts equally busy, of each sequence")
            .at_least(0)
            .shown_default("router_aux_loss_coef of config.json where it has output_router_logits: true, else 0"),
        &moe_aux_loss_coef);
  field(Field("moe_z_loss_coef", "weight of the squares of the logarithms of the routers' sums of exponentials").at_least(0),
        &moe_z_loss_coef);
  field(Field("rope_scaling", "how rotary embeddings reach cutoff_len tokens where the model was trained for fewer")
            .one_of({"linear", "yarn", "llama3", "dynamic"})
            .shown_default("config.json's")
            .advise("a mapping goes into the model's config.json"),
        &rope_scaling);
  field(Field("disable_gradient_checkpointing", "keep all activations for backward: faster, needs more memory"),
        &disable_gradient_checkpointing);
}

}  // namespace qft::config
