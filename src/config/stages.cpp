#include "qft/config/stages.h"

#include "qft/config/bound_field.h"
#include "qft/config/dump.h"
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

/// The widths of mrl_dims are whole numbers, their weights are at least 0 and one is above 0.
void check_embedding(const RunConfig& c) {
  const nlohmann::json& widths = c.finetuning.mrl_dims;
  if (widths.is_null()) return;
  const auto refuse = [&](std::string_view why) {
    fail_config("{} is {}, but {}: write a mapping from widths to weights, such as {{\"64\": 1.0, \"256\": 1.0}}",
                at_key(c, "mrl_dims"), widths.dump(), why);
  };
  if (!widths.is_object() || widths.empty()) refuse("it is not a mapping with entries");
  double most = 0.0;
  for (const auto& [width, weight] : widths.items()) {
    const bool is_width =
        !width.empty() && width.size() < 10 && width.find_first_not_of("0123456789") == width.npos && width[0] != '0';
    if (!is_width) refuse(fmt::format("'{}' is not a whole number of at least 1", width));
    if (!weight.is_number() || weight.get<double>() < 0)
      refuse(fmt::format("the weight of {} is not a number of at least 0", width));
    most = std::max(most, weight.get<double>());
  }
  if (most == 0.0) refuse("all weights are 0, so nothing is trained");
}

void check_reranker(const RunConfig& c) {
  const FinetuningArgs& f = c.finetuning;
  const auto word_or = [](const std::string& word, const char* usual) { return word.empty() ? std::string(usual) : word; };
  const std::string positive = word_or(f.reranker_positive_token, "yes"), negative = word_or(f.reranker_negative_token, "no");
  if (f.reranker_type == "generative" && positive == negative)
    fail_config("{} and {} are both '{}': the score is the difference of their logits, so name two tokens",
                at_key(c, "reranker_positive_token"), at_key(c, "reranker_negative_token"), positive);
  if (f.reranker_loss == "listwise" && f.max_negative_samples + 1 < f.listwise_min_group_size)
    fail_config(
        "{} is {}, so groups have at most {} documents, but {} is {}: no group would have a loss; raise the former or lower the "
        "latter",
        at_key(c, "max_negative_samples"), f.max_negative_samples, f.max_negative_samples + 1,
        at_key(c, "listwise_min_group_size"), f.listwise_min_group_size);
}

const Stage* reranker_row(const RunConfig& config) {
  static const Stage generative = [] {
    Stage row = stage_of("reranker");
    row.head = HeadKind::token_difference;
    return row;
  }();
  return config.finetuning.reranker_type == "generative" ? &generative : &stage_of("reranker");
}

constexpr RefusedKey kNoPacking = {
    "packing", [](const RunConfig& c) { return c.data.packing == true; }, "puts samples into rows of cutoff_len tokens",
    "in which items have two sequences and may be longer: remove packing (there is no padding without packing either)"};
constexpr RefusedKey kWholeTexts = {
    "packing", [](const RunConfig& c) { return c.data.packing == true; }, "puts samples into rows of cutoff_len tokens",
    "in which items have several sequences: remove packing (there is no padding without it either)"};
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
     .keys = {{"ref_model", "use_asft_loss"},
              {"ref_model_adapters", "use_asft_loss"},
              {"asft_alpha", "use_asft_loss"},
              {"eaft_alpha", "use_eaft_loss"}},
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
    {.name = "embedding",
     .learns = "embeddings of texts",
     .items = "anchors with their documents",
     .sample = SampleKind::texts,
     .sequences = 0,
     .limits = [](const RunConfig& c) -> ItemLimits {
       const FinetuningArgs& f = c.finetuning;
       return {.sample = SampleKind::texts, .negatives = f.embedding_loss == "infonce" ? f.infonce_hard_negatives : std::nullopt};
     },
     .head = HeadKind::vector,
     .token_labels = false,
     .model = "an embedding model",
     .predicts = "embeddings",
     .shown_metrics = {"mean_pos", "mean_neg", "margin", "spearman_cosine"},
     .keys = {{"embedding_loss"},
              {"infonce_temperature", "embedding_loss", {"infonce"}},
              {"infonce_use_batch", "embedding_loss", {"infonce"}},
              {"infonce_hard_negatives", "embedding_loss", {"infonce"}},
              {"infonce_mask_fake_negative", "infonce_use_batch"},
              {"infonce_fake_neg_margin", "infonce_mask_fake_negative"},
              {"infonce_mask_duplicates", "embedding_loss", {"infonce"}},
              {"infonce_include_qq", "infonce_use_batch"},
              {"infonce_include_dd", "infonce_use_batch"},
              {"contrastive_margin", "embedding_loss", {"contrastive", "online_contrastive"}},
              {"mrl_dims"}},
     .own_keys = {{"query_prompt", "document_prompt"}},
     .refused = {kWholeTexts, kNoLogprobs},
     .check = check_embedding},
    {.name = "reranker",
     .learns = "scores of documents",
     .items = "queries with their documents",
     .sample = SampleKind::ranking,
     .sequences = 0,
     .limits = [](const RunConfig& c) -> ItemLimits {
       const FinetuningArgs& f = c.finetuning;
       return {.sample = SampleKind::ranking, .groups = f.max_positive_samples, .negatives = f.max_negative_samples};
     },
     .head = HeadKind::classifier,
     .variant = reranker_row,
     .token_labels = false,
     .model = "a reranker",
     .predicts = "scores",
     .shown_metrics = {"acc", "mrr"},
     .keys = {{"reranker_type"},
              {"reranker_loss"},
              {"listwise_temperature", "reranker_loss", {"listwise"}},
              {"listwise_min_group_size", "reranker_loss", {"listwise"}},
              {"reranker_positive_token", "reranker_type", {"generative"}},
              {"reranker_negative_token", "reranker_type", {"generative"}},
              {"max_positive_samples"},
              {"max_negative_samples"}},
     .refused = {kWholeTexts, kNoLogprobs},
     .check = check_reranker},
};

}  // namespace

std::string Stage::unread_reason(std::string_view key, const RunConfig& config) const {
  const auto row = std::ranges::find(keys, key, &StageKey::key);
  if (row == keys.end()) return fmt::format("{} is {}", at_key(config, "stage"), name);
  if (row->only_with.empty()) return {};
  RunConfig copy = config;
  const auto fields = bound_fields(copy);
  const BoundField* other = find_field(fields, row->only_with);
  QFT_ASSERT(other != nullptr, "the table of stages names '{}', which is not a key", row->only_with);
  const nlohmann::json value = field_value(other->field, other->ref);
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (std::ranges::find(row->values, text) == row->values.end())
    return fmt::format("{} is {}", at_key(config, row->only_with), text);
  const bool chained = std::ranges::find(keys, row->only_with, &StageKey::key) != keys.end();
  return chained ? unread_reason(row->only_with, config) : std::string();
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
