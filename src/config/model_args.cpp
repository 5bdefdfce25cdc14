#include "qft/config/model_args.h"

namespace qft::config {

void ModelArgs::visit(const FieldVisitor& field) {
  field(Field("model_name_or_path", "folder of the model in Hugging Face layout").path(), &model_name_or_path);
  field(Field("tokenizer_name_or_path", "folder of the tokenizer's files").path().shown_default("model_name_or_path"),
        &tokenizer_name_or_path);
  field(Field("adapter_name_or_path", "LoRA adapters to load; training continues the last one").path(), &adapter_name_or_path);
  field(Field("adapter_folder", "sub-folder of adapter_name_or_path that holds the adapter"), &adapter_folder);
  field(Field("infer_dtype",
              "type of weights and compute in eval, generate, chat and predict, and of an export; auto: the model's own")
            .one_of({"auto", "float16", "bfloat16", "float32"}),
        &infer_dtype);
  field(Field("disable_gradient_checkpointing", "keep all activations for backward: faster, needs more memory"),
        &disable_gradient_checkpointing);
}

}  // namespace qft::config
