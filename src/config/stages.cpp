#include "qft/config/stages.h"

#include "qft/config/bound_field.h"
#include "qft/config/run_config.h"
#include "qft/core/error.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace qft::config {
namespace {

void check_pair_loss(const RunConfig& c) {
  const FinetuningArgs& f = c.finetuning;
  if (f.dpo_label_smoothing > 0 && f.pref_loss != "sigmoid" && f.pref_loss != "cpo")
    fail_config("{} needs pref_loss sigmoid or cpo, but {} is {}: remove it", at_key(c, "dpo_label_smoothing"),
                at_key(c, "pref_loss"), f.pref_loss);
  if (f.pref_bco_weight > 0 && (f.pref_loss == "orpo" || f.pref_loss == "simpo" || f.pref_loss == "cpo"))
    fail_config("{} compares rewards relative to a reference model, but {} is {}, which has no reference model: remove it",
                at_key(c, "pref_bco_weight"), at_key(c, "pref_loss"), f.pref_loss);
  if (f.rpo_alpha > 0 && f.ld_alpha.has_value())
    fail_config(
        "{} and {} exclude each other: the chosen answers' SFT loss would also weight labels by ld_alpha; pref_ftx does "
        "this, as in LLaMA-Factory",
        at_key(c, "rpo_alpha"), at_key(c, "ld_alpha"));
}

void check_feedback_weights(const RunConfig& c) {
  if (c.finetuning.kto_chosen_weight == 0 && c.finetuning.kto_rejected_weight == 0)
    fail_config("{} and {} are both 0, so nothing is trained: set one of them above 0", at_key(c, "kto_chosen_weight"),
                at_key(c, "kto_rejected_weight"));
}

void check_num_labels(const RunConfig& c) {
  const FinetuningArgs& f = c.finetuning;
  if (!f.num_labels)
    fail_config("{} is {}, which needs num_labels: set it to the number of labels, or to 1 for a regression", at_key(c, "stage"),
                f.stage);
  if (*f.num_labels == 1 && f.effective_problem_type(1) == "single_label_classification")
    fail_config(
        "{} is 1 and {} is single_label_classification, so every text has the same label: set problem_type: regression, or "
        "num_labels: 2",
        at_key(c, "num_labels"), at_key(c, "problem_type"));
}

constexpr RefusedKey kNoPacking = {
    "packing", [](const RunConfig& c) { return c.data.packing == true; }, "puts samples into rows of cutoff_len tokens",
    "in which items have two sequences and may be longer: remove packing (there is no padding without packing either)"};
constexpr RefusedKey kNoLogprobs = {"predict_logprobs", [](const RunConfig& c) { return !c.eval.predict_logprobs.empty(); },
                                    "asks for log-probabilities",
                                    "and its model outputs scores: remove it; qft score writes scores"};

const Stage kStages[] = {
    {.name = "pt",
     .learns = "raw text",
     .items = "single samples",
     .sample = SampleKind::document,
     .label_mean = true,
     .perplexity_alias = "eval_perplexity",  // as in LLaMA-Factory
     .shown_metrics = {"accuracy"}},
    {.name = "sft",
     .learns = "instructions",
     .items = "single samples",
     .sample = SampleKind::conversation,
     .label_mean = true,
     .weighs_labels = true,
     .predicts = "answers",
     .shown_metrics = {"accuracy"},
     .keys = {{"ref_model", &FinetuningArgs::use_asft_loss}, {"ref_model_adapters", &FinetuningArgs::use_asft_loss}},
     .own_keys = {{"neat_packing", "use_dft_loss", "use_eaft_loss", "use_asft_loss", "train_on_prompt", "mask_history",
                   "predict_with_generate"}}},
    {.name = "dpo",
     .learns = "preference pairs",
     .items = "preference pairs",
     .sample = SampleKind::pair,
     .sequences = 2,
     .lora_dropout = false,
     .shown_metrics = {"rewards/accuracies", "rewards/margins"},
     .keys = {{"pref_loss"},
              {"simpo_gamma"},
              {"rpo_alpha"},
              {"dpo_label_smoothing"},
              {"ld_alpha"},
              {"pref_bco_weight"},
              {"pref_beta"},
              {"pref_ftx"},
              {"precompute_ref_log_probs"},
              {"share_prompts"},
              {"ref_model"},
              {"ref_model_adapters"}},
     .refused = {kNoPacking},
     .check = check_pair_loss},
    {.name = "rm",
     .learns = "preference pairs",
     .items = "preference pairs",
     .sample = SampleKind::pair,
     .sequences = 2,
     .head = HeadKind::value,
     .model = "a reward model",
     .predicts = "scores",
     .shown_metrics = {"accuracy", "rewards/margins"},
     .keys = {{"share_prompts"}},
     .refused = {kNoPacking, kNoLogprobs}},
    {.name = "kto",
     .learns = "answers marked good or bad",
     .items = "single answers marked desirable or undesirable",
     .sample = SampleKind::feedback,
     .sequences = 2,  // the second one estimates the KL divergence
     .trains_first_only = true,
     .lora_dropout = false,
     .shown_metrics = {"rewards/margins"},
     .keys = {{"pref_beta"},
              {"pref_ftx"},
              {"precompute_ref_log_probs"},
              {"ref_model"},
              {"ref_model_adapters"},
              {"kto_chosen_weight"},
              {"kto_rejected_weight"}},
     .refused = {kNoPacking},
     .check = check_feedback_weights},
    {.name = "seq_cls",
     .learns = "text labels",
     .items = "texts with labels",
     .sample = SampleKind::sequence_label,
     .head = HeadKind::classifier,
     .token_labels = false,
     .model = "a classifier",
     .predicts = "labels",
     .own_keys = {{"num_labels", "problem_type"},
                  "belongs to a classifier",
                  ": set stage: seq_cls (task_type: seq_cls), or remove it",
                  /*pack_may_decide=*/true},
     .refused = {kNoLogprobs},
     .check = check_num_labels},
};

}  // namespace

bool Stage::reads(std::string_view key, const FinetuningArgs& args) const {
  const auto row = std::ranges::find(keys, key, &StageKey::key);
  return row != keys.end() && (row->only_with == nullptr || args.*row->only_with);
}

bool Stage::owns(std::string_view key) const {
  return std::ranges::find(own_keys.keys, key) != own_keys.keys.end();
}

std::span<const Stage> stages() {
  return kStages;
}

const Stage* find_stage(std::string_view name) {
  const auto row = std::ranges::find(kStages, name, &Stage::name);
  return row == std::end(kStages) ? nullptr : row;
}

std::string stage_names(const std::function<bool(const Stage&)>& has) {
  std::vector<std::string_view> names;
  for (const Stage& row : kStages)
    if (has(row)) names.push_back(row.name);
  return fmt::format("{}", fmt::join(names, " or "));
}

const Stage& stage_of(std::string_view name) {
  if (const Stage* row = find_stage(name)) return *row;
  std::vector<std::string_view> names;
  for (const Stage& row : kStages) names.push_back(row.name);
  fail_config("there is no stage '{}': expected one of {}", name, fmt::join(names, ", "));
}

}  // namespace qft::config
