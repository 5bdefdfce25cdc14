#include "qft/config/data_args.h"

namespace qft::config {

void DataArgs::visit(const FieldVisitor& field) {
  field(Field("template", "chat template that turns a conversation into tokens; own: the one that comes with the tokenizer")
            .shown_default("own"),
        &template_name);
  field(Field("chat_template", "file with another chat template in Jinja, instead of the tokenizer's own").path(),
        &chat_template);
  field(Field("chat_template_kwargs", "variables that a chat template in Jinja reads: {name: value}"), &chat_template_kwargs);
  field(Field("dataset", "training sets, by their names in dataset_info.json"), &dataset);
  field(Field("eval_dataset", "evaluation sets, by their names in dataset_info.json"), &eval_dataset);
  field(Field("dataset_dir", "folder of dataset_info.json and the data files").path(), &dataset_dir);
  field(Field("pack", "pack to train on, written by qft-pack, instead of packing `dataset` first").path(), &pack);
  field(Field("eval_pack", "pack to evaluate on, written by qft-pack").path(), &eval_pack);
  field(Field("cutoff_len", "longest sequence in tokens; the rest is cut off").at_least(1), &cutoff_len);
  field(Field("train_on_prompt", "train on the prompts too"), &train_on_prompt);
  field(Field("mask_history", "train on the last turn of each conversation only"), &mask_history);
  field(
      Field(
          "loss_scale",
          "what tokens count, as in ms-swift: default, last_round (mask_history) or all (train_on_prompt), with +hermes, +react "
          "and other schemes"),
      &loss_scale);
  field(Field("mix_strategy", "how several datasets are mixed")
            .one_of({"concat", "interleave_under", "interleave_over", "interleave_once"}),
        &mix_strategy);
  field(Field("interleave_probs", "probability of each dataset in interleaved mixing").in(0, 1), &interleave_probs);
  field(Field("preprocessing_batch_size",
              "records encoded at a time; stage pt joins the documents among them and cuts them into blocks")
            .at_least(1),
        &preprocessing_batch_size);
  field(Field("preprocessing_num_workers", "threads that encode in each rank, at most one for each of its cores")
            .at_least(1)
            .shown_default("its share of the cores"),
        &preprocessing_num_workers);
  field(Field("max_samples", "use only the first samples of each dataset").at_least(1), &max_samples);
  field(Field("val_size", "samples held out for evaluation: a number, or a fraction below 1").at_least(0), &val_size);
  field(Field("eval_on_each_dataset", "report the evaluation of each dataset on its own"), &eval_on_each_dataset);
  field(Field("packing", "join several samples in one row of cutoff_len tokens").shown_default("stage is pt"), &packing);
  field(Field("neat_packing", "the same as packing: samples of one row never see each other in qft"), &neat_packing);
  field(Field("tool_format", "format of function calls").shown_default("the template's"), &tool_format);
  field(Field("default_system", "system message that replaces the template's own"), &default_system);
  field(Field("enable_thinking",
              "true: reasoning stays in the response; false: an empty thought goes into the prompt; "
              "null: texts are left as they are"),
        &enable_thinking);
  field(Field("preserve_thinking", "keep the reasoning of earlier turns"), &preserve_thinking);
  field(Field("use_curriculum", "train from easy to hard: each step takes shares of the levels of difficulty"), &use_curriculum);
  field(Field("curriculum_seed", "seed of the order inside each level").shown_default("data_seed"), &curriculum_seed);
  field(Field("curriculum",
              "levels, and their shares by stage: {levels: [a, b], stages: [{until: 50, shares: [80, 20]}, "
              "{until: 100, shares: [50, 50]}]}")
            .shown_default("explain, reasoning, topology: 80/20/0 to 30 %, 40/40/20 to 70 %, 25/35/40 to 100 %"),
        &curriculum);
  field(Field("on_error", "a record that cannot be read: stop, or skip it and report").one_of({"stop", "skip"}), &on_error);
  field(Field("on_error_limit", "on_error: skip stops the run after more than this many broken records").at_least(0),
        &on_error_limit);
}

LossScale parse_loss_scale(const std::string& text) {
  const std::string first = text.substr(0, text.find('+'));
  if (first != "default" && first != "last_round" && first != "all") return {"", text};
  return {first, first.size() == text.size() ? "" : text.substr(first.size() + 1)};
}

}  // namespace qft::config
