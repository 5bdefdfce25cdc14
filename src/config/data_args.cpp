#include "qft/config/data_args.h"

namespace qft::config {

void DataArgs::visit(const FieldVisitor& field) {
  field(Field("template", "chat template; own: the one that comes with the tokenizer").shown_default("own"), &template_name);
  field(Field("chat_template", "Jinja file with a chat template that replaces the tokenizer's own").path(), &chat_template);
  field(Field("chat_template_kwargs", "variables for a Jinja chat template: {name: value}"), &chat_template_kwargs);
  field(Field("dataset", "training sets: names in dataset_info.json"), &dataset);
  field(Field("eval_dataset", "evaluation sets: names in dataset_info.json"), &eval_dataset);
  field(Field("dataset_dir", "folder with dataset_info.json and the data files").path(), &dataset_dir);
  field(Field("pack", "pack from qft-pack to train on, instead of packing `dataset` first").path(), &pack);
  field(Field("eval_pack", "pack from qft-pack to evaluate on").path(), &eval_pack);
  field(Field("cutoff_len", "longest sequence in tokens; longer ones are cut").at_least(1), &cutoff_len);
  field(Field("train_on_prompt", "train on the prompts too"), &train_on_prompt);
  field(Field("mask_history", "train only on the last turn of each conversation"), &mask_history);
  field(Field("loss_scale",
              "which tokens are trained, as in ms-swift: default, last_round (mask_history) or all (train_on_prompt), optionally "
              "with +hermes, +react and other schemes"),
        &loss_scale);
  field(Field("mix_strategy", "how to mix several datasets")
            .one_of({"concat", "interleave_under", "interleave_over", "interleave_once"}),
        &mix_strategy);
  field(Field("interleave_probs", "interleaved mixing: probability of each dataset").in(0, 1), &interleave_probs);
  field(Field("preprocessing_batch_size", "records encoded at a time; stage pt joins their documents and cuts them into blocks")
            .at_least(1),
        &preprocessing_batch_size);
  field(Field("preprocessing_num_workers", "encoding threads in each rank, at most one per core")
            .at_least(1)
            .shown_default("the rank's share of the cores"),
        &preprocessing_num_workers);
  field(Field("max_samples", "use only the first samples of each dataset").at_least(1), &max_samples);
  field(Field("val_size", "samples to hold out for evaluation: a number, or a fraction below 1").at_least(0), &val_size);
  field(Field("eval_on_each_dataset", "report each evaluation set separately"), &eval_on_each_dataset);
  field(Field("packing", "join several samples in a row of cutoff_len tokens").shown_default("true for stage pt"), &packing);
  field(Field("neat_packing", "same as packing: in qft, samples in one row never attend to each other"), &neat_packing);
  field(Field("tool_format", "format of function calls").shown_default("from the template"), &tool_format);
  field(Field("default_system", "system message that replaces the template's own"), &default_system);
  field(Field("query_prompt",
              "text put before each anchor, such as \"Instruct: ...\\nQuery:\" (sentence-transformers' prompt query)"),
        &query_prompt);
  field(Field("document_prompt", "text put before each document (sentence-transformers' prompt document)"), &document_prompt);
  field(Field("enable_thinking",
              "true: keep reasoning in the response; false: put an empty thought into the prompt; null: leave texts unchanged"),
        &enable_thinking);
  field(Field("preserve_thinking", "keep the reasoning of earlier turns"), &preserve_thinking);
  field(Field("use_curriculum", "train from easy to hard: each step takes a share of its samples from each level of difficulty"),
        &use_curriculum);
  field(Field("curriculum_seed", "seed for the order within each level").shown_default("data_seed"), &curriculum_seed);
  field(Field("curriculum",
              "levels and their shares in each stage: {levels: [a, b], stages: [{until: 50, shares: [80, 20]}, {until: 100, "
              "shares: [50, 50]}]}")
            .shown_default("explain, reasoning, topology: 80/20/0 to 30 %, 40/40/20 to 70 %, 25/35/40 to 100 %"),
        &curriculum);
  field(Field("on_error", "action for an unreadable record: stop, or skip and report it").one_of({"stop", "skip"}), &on_error);
  field(Field("on_error_limit", "with on_error: skip, the run stops after more broken records than this").at_least(0),
        &on_error_limit);
}

LossScale parse_loss_scale(const std::string& text) {
  const std::string first = text.substr(0, text.find('+'));
  if (first != "default" && first != "last_round" && first != "all") return {"", text};
  return {first, first.size() == text.size() ? "" : text.substr(first.size() + 1)};
}

}  // namespace qft::config
