#include "qft/config/model_args.h"

namespace qft::config {

void ModelArgs::visit(const FieldVisitor& field) {
  field(Field("model_name_or_path", "folder of the model in Hugging Face layout, or its name on a hub: owner/name").path(),
        &model_name_or_path);
  field(Field("model_revision", "branch, tag or commit of the model on its hub").shown_default("the hub's default branch"),
        &model_revision);
  field(Field("hub", "hub for names of models and datasets; auto: modelscope with USE_MODELSCOPE_HUB=1, else huggingface")
            .one_of({"auto", "huggingface", "modelscope"}),
        &hub);
  field(Field("tokenizer_name_or_path", "folder of the tokenizer's files").path().shown_default("model_name_or_path"),
        &tokenizer_name_or_path);
  field(Field("adapter_name_or_path",
              "LoRA adapters to load: folders or names on a hub; training continues the last one and merges the others")
            .path(),
        &adapter_name_or_path);
  field(Field("adapter_folder", "sub-folder of adapter_name_or_path that holds the adapter"), &adapter_folder);
  field(
      Field("follow_links",
            "follow links that point out of a file's folder, such as weights in a shared store; only if you trust their creator"),
      &follow_links);
  field(Field("stage_to", "folder on each node's local disk; model, adapters, packs and data are copied there once, over MPI")
            .path(),
        &stage_to);
  field(Field("stage_limit", "largest size of stage_to in GB; the least recently used copies are removed first").above(0),
        &stage_limit);
  field(Field("infer_dtype", "type of weights and compute in eval, generate, chat, predict and export; auto: the model's own")
            .one_of({"auto", "float16", "bfloat16", "float32"}),
        &infer_dtype);
  field(Field("quantization_bit", "quantise the layers' frozen linears on loading, to 4 or 8 bits")
            .in(4, 8)
            .shown_default("not quantised"),
        &quantization_bit);
  field(
      Field("quantization_method", "bnb: nf4 or fp4 for 4 bits, int8 for 8 bits; int8 and fp8: 8 bits only")
          .one_of({"bnb", "int8", "fp8"})
          .advise("hqq and eetq are not implemented; models quantised by GPTQ, AWQ, bitsandbytes or fp8 load without these keys"),
      &quantization_method);
  field(Field("quantization_type", "4 bits: the number format").one_of({"nf4", "fp4"}), &quantization_type);
  field(Field("double_quantization", "4 bits: quantise the scales too"), &double_quantization);
  field(Field("moe_aux_loss_coef", "weight of the load-balancing loss over a model's experts, per sequence")
            .at_least(0)
            .shown_default("router_aux_loss_coef in config.json if output_router_logits is true there, else 0"),
        &moe_aux_loss_coef);
  field(Field("moe_z_loss_coef", "weight of the router z-loss: the squared logsumexp of the router logits").at_least(0),
        &moe_z_loss_coef);
  field(Field("rope_scaling", "how rotary embeddings extend to cutoff_len tokens if the model was trained for fewer")
            .one_of({"linear", "yarn", "llama3", "dynamic"})
            .shown_default("from config.json")
            .advise("write a mapping into the model's config.json instead"),
        &rope_scaling);
  field(Field("disable_gradient_checkpointing", "keep all activations for backward: faster, but needs more memory"),
        &disable_gradient_checkpointing);
}

}  // namespace qft::config
