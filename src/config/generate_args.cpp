#include "qft/config/generate_args.h"

namespace qft::config {

void GenerateArgs::visit(const FieldVisitor& field) {
  field(Field("prompt", "user message for qft generate").shown_default("text from a pipe"), &prompt);
  field(Field("system", "system message for qft chat and generate (with --input: for records without one)")
            .shown_default("default_system"),
        &system);
  field(Field("do_sample", "sample the next token; false: take the most probable one"), &do_sample);
  field(Field("temperature", "divides the logits before sampling; 0: the most probable token, as with do_sample: false")
            .at_least(0),
        &temperature);
  field(Field("top_p", "sample from the smallest set of tokens with this probability").in(0, 1), &top_p);
  field(Field("top_k", "sample from this many most probable tokens; 0: from all").at_least(0), &top_k);
  field(Field("max_length", "largest number of tokens in prompt and answer; applies if max_new_tokens is 0").at_least(1),
        &max_length);
  field(Field("max_new_tokens", "largest number of tokens in the answer").at_least(0), &max_new_tokens);
  field(Field("repetition_penalty", "divides the logits of earlier tokens").above(0), &repetition_penalty);
  field(Field("skip_special_tokens", "omit special tokens from the text"), &skip_special_tokens);
}

void EvalArgs::visit(const FieldVisitor& field) {
  field(Field("predict_with_generate",
              "also generate answers to the evaluation set and report BLEU-4 and ROUGE-1/2/L (each Han character is a word)"),
        &predict_with_generate);
  field(Field("predict_logprobs", "file for the log-probability of each label token (JSON lines)").path(), &predict_logprobs);
}

void ExportArgs::visit(const FieldVisitor& field) {
  field(Field("export_dir", "folder of the exported model").path(), &export_dir);
  field(Field("export_size", "largest file of the exported model, in GB").at_least(1), &export_size);
  field(Field("export_format",
              "safetensors: a folder in Hugging Face layout; gguf: a file for llama.cpp with matrices in infer_dtype; gguf_q8_0: "
              "a GGUF file with 8-bit blocks")
            .one_of({"safetensors", "gguf", "gguf_q8_0"}),
        &export_format);
  field(Field("export_quantization_bit",
              "4: quantise the layers' linears to 4 bits (nf4), in the format of transformers and bitsandbytes")
            .in(4, 4)
            .advise("8 bits, GPTQ and AWQ are not implemented: use 4, or export_format: gguf_q8_0")
            .shown_default("not quantised, in infer_dtype"),
        &export_quantization_bit);
}

}  // namespace qft::config
