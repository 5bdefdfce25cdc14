// The training stages: a table with one row per value of the key `stage`. All modules ask the row instead of comparing names.
// engine/objectives.h has the second half of a row: the objective, and the columns that it reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace qft::config {

struct FinetuningArgs;
struct RunConfig;

/// The sample that a record becomes. document: a text to continue. conversation: its answers are learned. pair: two answers to
/// one question. feedback: an answer marked desirable or not, with an answer to another question. sequence_label: a conversation,
/// with or without its last answer; the target applies to the whole sequence and no token is a label. texts: an anchor, its
/// positives, and any number of negatives. ranking: a query with each of its documents, the positive documents first.
enum class SampleKind : std::uint8_t { document, conversation, pair, feedback, sequence_label, texts, ranking };

/// The model's output.
enum class HeadKind : std::uint8_t {
  language_model,   ///< logits of the next token
  value,            ///< one score per sequence
  classifier,       ///< num_labels values per sequence
  vector,           ///< the normalised hidden state of each sequence's last token
  token_difference  ///< the logit of one token minus the logit of another, after each sequence's last token
};

/// The sequences of an item that take part in a step, for items with varying numbers of sequences.
struct ItemLimits {
  SampleKind sample = SampleKind::texts;  ///< texts or ranking
  /// ranking: draws up to that many positives for each step, each followed by its own draw of negatives. Empty: all sequences.
  std::optional<std::int64_t> groups = {};
  /// texts: exactly that many negatives, the first ones, repeated in turn if the item has fewer. ranking with groups: the most
  /// negatives of a group. Empty: all.
  std::optional<std::int64_t> negatives = {};

  /// Returns the sequences of an item for plans without data: one positive and one negative if there are no limits. At most
  /// 10,000, because a limit may be a large number that means "all".
  int planned_sequences() const {
    const std::int64_t others = negatives.value_or(1);
    const std::int64_t all = sample == SampleKind::texts ? 2 + others : groups.value_or(1) * (1 + others);
    return static_cast<int>(std::min<std::int64_t>(all, 10000));
  }
};

/// A key that a stage reads.
struct StageKey {
  std::string_view key;
  std::string_view only_with = {};  ///< read only if this key is read too (if it is one of the stage's) and has one of `values`
  std::initializer_list<std::string_view> values = {"true"};
};

/// Keys that are errors in stages that do not list them. Several stages may list the same key.
struct OwnKeys {
  std::initializer_list<std::string_view> keys;
  std::string_view claim = {};   ///< for the error in other stages; empty: "needs stage NAME", with all stages that list the key
  std::string_view remedy = {};  ///< appended to the error
  bool pack_may_decide = false;  ///< no error if the stage is not given and a pack may set it
};

/// A key that a stage refuses. The error is "KEY `claim`, but stage is NAME, `reason`".
struct RefusedKey {
  std::string_view key;
  bool (*is_used)(const RunConfig& config);
  std::string_view claim, reason;
};

struct Stage {
  std::string_view name;    ///< the value of `stage`
  std::string_view learns;  ///< for the help
  std::string_view items;   ///< for messages; stages with the same text train on the same packs
  SampleKind sample = SampleKind::conversation;
  int sequences = 1;  ///< sequences per item; 0: it varies, and `limits` is set
  ItemLimits (*limits)(const RunConfig& config) = nullptr;
  bool trains_first_only = false;  ///< an item's other sequences are only read before the step
  HeadKind head = HeadKind::language_model;
  const Stage* (*variant)(const RunConfig& config) = nullptr;  ///< the row for the run's keys, if they decide about the head
  bool token_labels = true;                                    ///< tokens are labels; an item without one is left out
  bool label_mean = false;                                     ///< the loss is a mean over labels: compute_accuracy applies
  bool weighs_labels = false;              ///< labels of conversations may have weights: loss_scale, and the data's weights
  bool lora_dropout = true;                ///< false if the loss compares log-probabilities: dropout would add noise to them
  std::string_view model = {};             ///< the model that it trains, for messages about models without answers
  std::string_view predicts = {};          ///< do_predict writes this; empty: do_predict is refused
  std::string_view perplexity_alias = {};  ///< a second name under which evaluations report perplexity
  std::initializer_list<std::string_view> shown_metrics = {};  ///< metrics that the log shows beside eval_loss
  std::initializer_list<StageKey> keys = {};                   ///< keys without effect in stages that do not list them
  OwnKeys own_keys = {};
  std::initializer_list<RefusedKey> refused = {};
  void (*check)(const RunConfig& config) = nullptr;  ///< throws ConfigError if the stage's keys contradict each other

  /// Returns the row for a run in this stage: this one or its variant.
  const Stage& row_for(const RunConfig& config) const { return variant == nullptr ? *this : *variant(config); }
  /// True if an item is a chosen and a rejected answer to the same prompt.
  bool has_pairs() const { return sample == SampleKind::pair; }
  /// True if an item is raw text, encoded without a template.
  bool has_documents() const { return sample == SampleKind::document; }
  /// True if the model outputs values for whole sequences instead of text.
  bool outputs_scores() const { return head != HeadKind::language_model; }
  bool classifies() const { return head == HeadKind::classifier; }
  /// True if do_predict and predict_with_generate write answers.
  bool generates() const { return predicts == "answers"; }
  /// True if the stage reads this key of `keys`.
  bool reads(std::string_view key, const RunConfig& config) const { return unread_reason(key, config).empty(); }
  /// Returns why the stage does not read this key, such as "stage is sft" or "embedding_loss is contrastive"; empty if it does.
  std::string unread_reason(std::string_view key, const RunConfig& config) const;
  /// True if the stage lists this key in `own_keys`.
  bool owns(std::string_view key) const;
  /// True if a pack of stage `packed` has the items that this stage trains on.
  bool trains_on_items_of(const Stage& packed) const { return items == packed.items; }
};

/// Returns all stages, in the order of the help.
std::span<const Stage> stages();
/// Returns the stage with that name; nullptr if there is none.
const Stage* find_stage(std::string_view name);
/// Returns the names of the stages for which `has` is true, for messages: "sft", or "sft or kto".
std::string stage_names(const std::function<bool(const Stage&)>& has);
/// Returns the stage with that name. Throws ConfigError if there is none.
const Stage& stage_of(std::string_view name);

}  // namespace qft::config
