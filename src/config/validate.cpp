// Checks relations between keys, as LLaMA-Factory and transformers do, and the keys that each program requires.
#include "qft/config/bound_field.h"
#include "qft/config/dump.h"
#include "qft/config/run_config.h"
#include "qft/config/start.h"
#include "qft/core/error.h"
#include "qft/core/hub.h"

#include <cmath>
#include <filesystem>

#include "runnable.h"
#include <fmt/ranges.h>

namespace qft::config {
namespace {

/// Throws if both keys are in use.
void exclude(const RunConfig& c, bool both, std::string_view a, std::string_view b, std::string_view why) {
  if (both) fail_config("{} and {} exclude each other: {}", at_key(c, a), at_key(c, b), why);
}

void check_model(const RunConfig& c) {
  if (!c.model.adapter_name_or_path.empty() && !c.finetuning.trains_adapter()) {
    fail_config("{} is {}, but {} is given: only lora and oft use adapters", at_key(c, "finetuning_type"),
                c.finetuning.finetuning_type, at_key(c, "adapter_name_or_path"));
  }
}

void check_quantization(const RunConfig& c) {
  const ModelArgs& m = c.model;
  if (!m.quantization_bit) return;
  if (*m.quantization_bit != 4 && *m.quantization_bit != 8)
    fail_config("{}: expected 4 or 8, got {}", at_key(c, "quantization_bit"), *m.quantization_bit);
  if (*m.quantization_bit == 4 && m.quantization_method != "bnb")
    fail_config("{} is {}, which has 8 bits, but {} is 4: set it to 8, or quantization_method to bnb",
                at_key(c, "quantization_method"), m.quantization_method, at_key(c, "quantization_bit"));
  if (!c.finetuning.trains_adapter())
    fail_config(
        "{} is {}, but {} is {}: quantised weights cannot be trained; set finetuning_type to lora, or remove quantization_bit",
        at_key(c, "quantization_bit"), *m.quantization_bit, at_key(c, "finetuning_type"), c.finetuning.finetuning_type);
}

void check_export(const RunConfig& c) {
  const ExportArgs& e = c.exporting;
  if (e.export_quantization_bit && e.export_format != "safetensors")
    fail_config("{} is {}, which needs safetensors, but {} is {}: remove one of them", at_key(c, "export_quantization_bit"),
                *e.export_quantization_bit, at_key(c, "export_format"), e.export_format);
}

void check_mixing(const RunConfig& c) {
  const DataArgs& d = c.data;
  if (d.interleave_probs.empty()) return;
  if (d.mix_strategy == "concat") {
    fail_config("{} needs an interleaved {}, but it is concat", at_key(c, "interleave_probs"), at_key(c, "mix_strategy"));
  }
  for (const auto& [key, names] : {std::pair{"dataset", d.dataset}, std::pair{"eval_dataset", d.eval_dataset}}) {
    if (!names.empty() && names.size() != d.interleave_probs.size()) {
      fail_config("{} has {} values, but {} has {} names: give one probability each", at_key(c, "interleave_probs"),
                  d.interleave_probs.size(), at_key(c, key), names.size());
    }
  }
}

void check_template(const RunConfig& c) {
  const DataArgs& d = c.data;
  const bool is_word = !d.chat_template.empty() && d.chat_template.find_first_of("/.") == std::string::npos;
  if (is_word)
    fail_config(
        "{} is '{}', but it must be a Jinja file (FILE.jinja): name one of qft's templates in template, or remove both keys to "
        "use the model's own",
        at_key(c, "chat_template"), d.chat_template);
  if (!d.chat_template_kwargs.is_null() && !d.chat_template_kwargs.is_object())
    fail_config("{}: expected variables of the chat template, {{name: value}}, got {}", at_key(c, "chat_template_kwargs"),
                d.chat_template_kwargs.dump());
}

void check_data(const RunConfig& c) {
  const DataArgs& d = c.data;
  if (d.val_size > 1 && d.val_size != std::floor(d.val_size)) {
    fail_config("{}: expected a whole number of samples or a fraction below 1, got {}", at_key(c, "val_size"), d.val_size);
  }
  exclude(c, d.val_size > 0 && !d.eval_dataset.empty(), "val_size", "eval_dataset",
          "evaluate on a part of the training set or on a separate set");
  exclude(c, d.val_size > 0 && !d.eval_pack.empty(), "val_size", "eval_pack",
          "evaluate on a part of the training set or on a separate set");
  exclude(c, !d.eval_dataset.empty() && !d.eval_pack.empty(), "eval_dataset", "eval_pack", "keep one of them");
  if (d.val_size > 0 && d.dataset.empty() && d.pack.empty()) {
    fail_config("{} is {}, but there is no dataset or pack to take it from", at_key(c, "val_size"), d.val_size);
  }
  exclude(c, d.mask_history && d.train_on_prompt, "mask_history", "train_on_prompt",
          "the first skips earlier turns, the second trains on them");
  if (d.neat_packing && d.packing == false) {
    fail_config("{} is true, but {} is false: remove one", at_key(c, "neat_packing"), at_key(c, "packing"));
  }
  check_mixing(c);
}

void check_schedule(const RunConfig& c) {
  const TrainingArgs& t = c.training;
  if (!t.traced_steps())
    fail_config("{}: expected a step or a range of steps from 1, such as 5 or 5-8, got '{}'", at_key(c, "trace_steps"),
                t.trace_steps);
  // transformers 4 refuses the fraction, transformers 5 ignores it.
  if (t.warmup_steps > 0 && t.warmup_steps < 1 && t.warmup_ratio > 0 && t.warmup_ratio != t.warmup_steps)
    fail_config("{} is {} and {} is {}, both fractions of all steps: remove one", at_key(c, "warmup_steps"), t.warmup_steps,
                at_key(c, "warmup_ratio"), t.warmup_ratio);
}

void check_oft(const RunConfig& c) {
  const FinetuningArgs& f = c.finetuning;
  if (f.finetuning_type != "oft") return;
  if ((f.oft_rank > 0) == (f.oft_block_size > 0))
    fail_config("{} is {} and {} is {}: give the number of blocks or their size, and set the other one to 0",
                at_key(c, "oft_rank"), f.oft_rank, at_key(c, "oft_block_size"), f.oft_block_size);
}

/// True if the key has another value than its default.
bool is_set(const std::vector<BoundField>& given, const std::vector<BoundField>& initial, std::string_view key) {
  const BoundField *mine = find_field(given, key), *theirs = find_field(initial, key);
  QFT_ASSERT(mine != nullptr, "the table of stages names '{}', which is not a key", key);
  return field_value(mine->field, mine->ref) != field_value(theirs->field, theirs->ref);
}

/// Refuses keys that do not fit the stage: keys of other stages, and the keys that its row refuses.
void check_stage(const RunConfig& c) {
  const Stage& stage = c.stage();
  RunConfig copy = c, defaults;
  const auto given = bound_fields(copy), initial = bound_fields(defaults);
  for (const Stage& other : stages()) {
    const OwnKeys& own = other.own_keys;
    if (own.pack_may_decide && !c.is_given("stage") && !c.data.pack.empty()) continue;
    for (const std::string_view key : own.keys) {
      if (stage.owns(key) || !is_set(given, initial, key)) continue;
      const std::string owners = stage_names([&](const Stage& row) { return row.owns(key); });
      fail_config("{} {}, but {} is {}{}", at_key(c, key), own.claim.empty() ? "needs stage " + owners : std::string(own.claim),
                  at_key(c, "stage"), stage.name, own.remedy);
    }
  }
  for (const RefusedKey& row : stage.refused)
    if (row.is_used(c))
      fail_config("{} {}, but {} is {}, {}", at_key(c, row.key), row.claim, at_key(c, "stage"), stage.name, row.reason);
  if (stage.check != nullptr) stage.check(c);
}

void check_method(const RunConfig& c) {
  const FinetuningArgs& f = c.finetuning;
  const auto lora_only = [&](bool asked, std::string_view key) {
    if (asked && f.finetuning_type != "lora") {
      fail_config("{} needs finetuning_type lora, but {} is {}", at_key(c, key), at_key(c, "finetuning_type"), f.finetuning_type);
    }
  };
  lora_only(f.use_rslora, "use_rslora");
  lora_only(f.use_dora, "use_dora");
  lora_only(!f.rank_pattern.is_null(), "rank_pattern");
  lora_only(!f.alpha_pattern.is_null(), "alpha_pattern");
  lora_only(f.pissa_init, "pissa_init");
  lora_only(f.loraplus_lr_ratio.has_value(), "loraplus_lr_ratio");
  const auto adapter_only = [&](bool asked, std::string_view key) {
    if (asked && !f.trains_adapter())
      fail_config("{} needs finetuning_type lora or oft, but {} is {}", at_key(c, key), at_key(c, "finetuning_type"),
                  f.finetuning_type);
  };
  adapter_only(!f.additional_target.empty(), "additional_target");
  check_oft(c);
  if (f.use_llama_pro && f.finetuning_type != "freeze")
    fail_config("{} needs finetuning_type freeze, but {} is {}: LoRA on only the expanded layers is not implemented",
                at_key(c, "use_llama_pro"), at_key(c, "finetuning_type"), f.finetuning_type);
  check_stage(c);
  std::string_view loss;
  for (const auto& [key, asked] :
       {std::pair{"use_dft_loss", f.use_dft_loss}, {"use_eaft_loss", f.use_eaft_loss}, {"use_asft_loss", f.use_asft_loss}}) {
    exclude(c, asked && !loss.empty(), loss, key, "a run has one loss");
    if (asked) loss = key;
  }
  exclude(c, c.eval.predict_with_generate && f.compute_accuracy, "predict_with_generate", "compute_accuracy",
          "generation has no token accuracy");
  exclude(c, c.eval.predict_with_generate && c.data.train_on_prompt, "predict_with_generate", "train_on_prompt",
          "if prompts are labels too, the reference answer is unknown");
}

void check_precision(const RunConfig& c) {
  const TrainingArgs& t = c.training;
  exclude(c, t.bf16 && t.fp16, "bf16", "fp16", "set one of them");
  exclude(c, t.pure_bf16 && t.fp16, "pure_bf16", "fp16", "set one of them");
  if (t.compute_dtype == "auto") return;
  exclude(c, t.bf16 && t.compute_dtype != "bfloat16", "bf16", "compute_dtype", "they name different types");
  exclude(c, t.fp16 && t.compute_dtype != "float16", "fp16", "compute_dtype", "they name different types");
  exclude(c, t.pure_bf16 && t.compute_dtype != "bfloat16", "pure_bf16", "compute_dtype", "they name different types");
}

void check_offload(const RunConfig& c) {
  if (c.parallel.offload_activations != "none" && !c.recompute()) {
    fail_config("{} moves the inputs of layers that backward recomputes, but gradient_checkpointing is off: remove one of them",
                at_key(c, "offload_activations"));
  }
}

void check_deterministic(const RunConfig& c) {
  if (!c.training.deterministic) return;
  if (c.parallel.strategy != "auto" && c.parallel.strategy != "ddp") {
    fail_config(
        "{} sums gradients in the same order on any number of ranks, which is only implemented for ddp, but {} is {}: use ddp, "
        "or remove the key (on the same number of ranks, CPU runs are bit-identical with every strategy)",
        at_key(c, "deterministic"), at_key(c, "strategy"), c.parallel.strategy);
  }
  const auto exclude_with = [&](bool asked, std::string_view key, std::string_view why) {
    exclude(c, asked, "deterministic", key, why);
  };
  exclude_with(c.parallel.context_parallel > 1, "context_parallel",
               "each context rank adds its part of a micro-batch's gradient, in no fixed order");
  exclude_with(c.training.breadth_first_micro_batches > 1, "breadth_first_micro_batches",
               "the gradients of each micro-batch are kept separate, one micro-batch after another");
  exclude_with(c.parallel.offload_optimizer != "none", "offload_optimizer",
               "gradients that move to host memory are summed during the transfer");
  exclude_with(c.parallel.offload_param != "none", "offload_param", "offloaded weights are sharded, as with zero3");
}

void check_cuda_graphs(const RunConfig& c) {
  if (!c.training.cuda_graphs) return;
  for (const auto& [key, ranks] :
       {std::pair{"tensor_parallel", c.parallel.tensor_parallel}, {"context_parallel", c.parallel.context_parallel}})
    if (ranks > 1)
      fail_config(
          "{} records whole layers, but {} is {}, so ranks exchange rows inside each layer: remove cuda_graphs, or set {}: 1",
          at_key(c, "cuda_graphs"), at_key(c, key), ranks, key);
  if (c.finetuning.finetuning_type == "oft")
    fail_config("{} does not work with finetuning_type oft, because the host computes the rotations: remove it",
                at_key(c, "cuda_graphs"));
  if (const auto& s = c.parallel.strategy; s != "auto" && s != "ddp" && s != "zero1") {
    fail_config(
        "{} needs weights and gradients at fixed addresses, but {} is {}, which shards them: use ddp or zero1, or remove "
        "cuda_graphs",
        at_key(c, "cuda_graphs"), at_key(c, "strategy"), s);
  }
  if (c.finetuning.finetuning_type == "lora" && c.finetuning.lora_dropout > 0) {
    fail_config(
        "{} replays recorded work, but {} is {}, which needs a new mask in every step: set it to 0, or remove cuda_graphs",
        at_key(c, "cuda_graphs"), at_key(c, "lora_dropout"), c.finetuning.lora_dropout);
  }
  for (const auto& [key, place] : {std::pair{"offload_optimizer", c.parallel.offload_optimizer},
                                   {"offload_param", c.parallel.offload_param},
                                   {"offload_activations", c.parallel.offload_activations}})
    exclude(c, place != "none", "cuda_graphs", key,
            "offloaded tensors come back at other addresses; graphs are for small models, which fit without offloading");
}

void check_evaluation(const RunConfig& c) {
  const TrainingArgs& t = c.training;
  const bool has_data = !c.data.eval_dataset.empty() || !c.data.eval_pack.empty() || c.data.val_size > 0;
  const auto needs_data = [&](bool asked, std::string_view key) {
    if (asked && !has_data) {
      fail_config("{} asks for evaluation, but there is no data to evaluate on: give eval_dataset, eval_pack or val_size",
                  at_key(c, key));
    }
  };
  needs_data(t.eval_strategy != "no", "eval_strategy");
  needs_data(t.do_eval, "do_eval");
  needs_data(t.do_predict, "do_predict");
  needs_data(c.eval.predict_with_generate, "predict_with_generate");
  if (c.stage().generates() && t.do_predict && !c.eval.predict_with_generate) {
    fail_config("{} needs predict_with_generate: true", at_key(c, "do_predict"));
  }
  if (c.finetuning.early_stopping_steps && !t.load_best_model_at_end) {
    fail_config("{} needs load_best_model_at_end: true", at_key(c, "early_stopping_steps"));
  }
  if (!t.load_best_model_at_end) return;
  if (t.save_only_model) {
    fail_config("{} reads weights from the best checkpoint's training state, which {} does not save: remove one of them",
                at_key(c, "load_best_model_at_end"), at_key(c, "save_only_model"));
  }
  if (t.eval_strategy == "no" || t.eval_strategy != t.save_strategy) {
    fail_config("{} needs evaluations and checkpoints at the same steps, but {} is {} and {} is {}",
                at_key(c, "load_best_model_at_end"), at_key(c, "eval_strategy"), t.eval_strategy, at_key(c, "save_strategy"),
                t.save_strategy);
  }
  const double every = t.save_steps / t.eval_steps;
  if (t.save_strategy == "steps" && std::abs(every - std::round(every)) > 1e-9) {
    fail_config("{} needs an evaluation of each checkpoint, but {} {} is not a multiple of {} {}",
                at_key(c, "load_best_model_at_end"), at_key(c, "save_steps"), t.save_steps, at_key(c, "eval_steps"),
                t.eval_steps);
  }
}

void need(const RunConfig& c, bool present, std::string_view keys, std::string_view program) {
  if (!present) {
    fail_config("{}: {} needs {}", c.source.empty() ? std::string("configuration") : c.source.string(), program, keys);
  }
}

/// Evaluations during training and do_predict generate answers.
void check_prediction(const RunConfig& c) {
  if (c.eval.predict_with_generate && !c.training.do_predict && !(trains(c) && c.training.do_eval)) {
    fail_config("{} is true, but {}: add do_predict: true, or remove it and run qft eval", at_key(c, "predict_with_generate"),
                trains(c) ? "nothing is evaluated" : "a run without training only reports the loss");
  }
  if (c.training.do_predict && c.stage().predicts.empty()) {
    std::vector<std::string> rows;
    for (const Stage& stage : stages())
      if (!stage.predicts.empty()) rows.push_back(fmt::format("{} ({})", stage.name, stage.predicts));
    const std::string last = rows.back();
    rows.pop_back();
    fail_config("{} needs stage {} or {}, but {} is {}", at_key(c, "do_predict"), fmt::join(rows, ", "), last, at_key(c, "stage"),
                c.finetuning.stage);
  }
}

void check_purpose(const RunConfig& c, Purpose purpose) {
  // An adapter on a hub names its base model after the download.
  const auto& adapters = c.model.adapter_name_or_path;
  const bool model = !c.model.model_name_or_path.empty() ||
                     (!adapters.empty() && is_hub_name(adapters.front()) && !std::filesystem::exists(adapters.front()));
  const bool train_data = !c.data.dataset.empty() || !c.data.pack.empty();
  const bool eval_data = train_data || !c.data.eval_dataset.empty() || !c.data.eval_pack.empty();
  switch (purpose) {
    case Purpose::any:
    case Purpose::check:
      return;
    case Purpose::pack:
      need(c, !c.tokenizer_path().empty(), "model_name_or_path or tokenizer_name_or_path", "qft-pack");
      return need(c, !c.data.dataset.empty() || !c.data.eval_dataset.empty(), "dataset or eval_dataset", "qft-pack");
    case Purpose::train:
      need(c, model, "model_name_or_path", "qft train");
      need(c, !trains(c) || train_data, "dataset or pack", "qft train");
      need(c, !c.training.output_dir.empty(), "output_dir", "qft train");
      if (!trains(c) && !c.training.do_eval && !c.training.do_predict) {
        fail_config(
            "{} is false, and neither do_eval nor do_predict is true, so there is nothing to do: set one of them to true, or run "
            "qft eval",
            at_key(c, "do_train"));
      }
      return check_prediction(c);
    case Purpose::eval:
      need(c, model, "model_name_or_path", "qft eval");
      need(c, !c.eval.predict_with_generate || !c.training.output_dir.empty(), "output_dir", "predict_with_generate");
      return need(c, eval_data, "eval_dataset, eval_pack, dataset or pack", "qft eval");
    case Purpose::generate:
      if (c.stage().outputs_scores())
        fail_config("{} is {}: {} does not write answers: use qft score{}", at_key(c, "stage"), c.finetuning.stage,
                    c.stage().model, c.stage().classifies() ? "" : " (or stage: sft to run the language model)");
      return need(c, model, "model_name_or_path", "qft generate (or chat)");
    case Purpose::export_model:
      need(c, model, "model_name_or_path", "qft export");
      return need(c, !c.exporting.export_dir.empty(), "export_dir", "qft export");
    case Purpose::plan:
      return need(c, model, "model_name_or_path", "qft plan");
  }
}

}  // namespace

void RunConfig::validate(Purpose purpose) const {
  check_model(*this);
  check_quantization(*this);
  check_export(*this);
  check_template(*this);
  check_data(*this);
  check_method(*this);
  check_schedule(*this);
  check_precision(*this);
  check_offload(*this);
  check_deterministic(*this);
  check_cuda_graphs(*this);
  check_evaluation(*this);
  check_purpose(*this, purpose);
  require_runnable(*this, purpose == Purpose::train && !trains(*this) ? Purpose::eval : purpose);
}

}  // namespace qft::config
