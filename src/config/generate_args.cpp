#include "qft/config/generate_args.h"

namespace qft::config {

void GenerateArgs::visit(const FieldVisitor& field) {
  field(Field("prompt", "the user's message for qft generate").shown_default("what is piped into it"), &prompt);
  field(Field("system", "system message for qft generate (with --input of records without one) and chat")
            .shown_default("default_system"),
        &system);
  field(Field("do_sample", "draw the next token; false: take the most probable one"), &do_sample);
  field(Field("temperature", "divides the logits before sampling; 0: the most probable token, as with do_sample: false")
            .at_least(0),
        &temperature);
  field(Field("top_p", "sample from the smallest set of tokens with this probability").in(0, 1), &top_p);
  field(Field("top_k", "sample from this many most probable tokens; 0: from all").at_least(0), &top_k);
  field(Field("max_length", "tokens of prompt and answer; counts where max_new_tokens is 0").at_least(1), &max_length);
  field(Field("max_new_tokens", "tokens of the answer").at_least(0), &max_new_tokens);
  field(Field("repetition_penalty", "divides the logits of tokens that occurred").above(0), &repetition_penalty);
  field(Field("skip_special_tokens", "leave special tokens out of the text"), &skip_special_tokens);
}

void EvalArgs::visit(const FieldVisitor& field) {
  field(Field("predict_with_generate",
              "generate answers to the evaluation set too: BLEU-4, ROUGE-1/2/L (a Han character is a word)"),
        &predict_with_generate);
  field(Field("predict_logprobs", "file for the log-probability of each label token (JSON lines)").path(), &predict_logprobs);
}

void ExportArgs::visit(const FieldVisitor& field) {
  field(Field("export_dir", "folder of the exported model").path(), &export_dir);
  field(Field("export_size", "largest file of the exported model in GB").at_least(1), &export_size);
  field(Field("export_format",
              "safetensors: a folder in Hugging Face layout; gguf: a file for llama.cpp, matrices in infer_dtype; gguf_q8_0: "
              "matrices "
              "in blocks of 8 bits")
            .one_of({"safetensors", "gguf", "gguf_q8_0"}),
        &export_format);
  field(Field("export_quantization_bit", "4: linears of the layers in 4 bits (nf4), as transformers and bitsandbytes load them")
            .in(4, 4)
            .advise("8 bits, GPTQ and AWQ are not implemented: 4, or export_format: gguf_q8_0")
            .shown_default("16 bits, or infer_dtype's"),
        &export_quantization_bit);
}

}  // namespace qft::config
