// Encodes conversations as token sequences with labels, cut to cutoff_len by LLaMA-Factory's rules.
#pragma once

#include "qft/config/stages.h"
#include "qft/encode/chat_template.h"
#include "qft/encode/conversation.h"
#include "qft/encode/drop_reason.h"
#include "qft/encode/item.h"

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace qft::encode {

using config::SampleKind;

struct EncoderOptions {
  SampleKind kind = SampleKind::conversation;
  bool weighs_labels = true;  // conversations: the data may give weights to answers (config::Stage::weighs_labels)
  std::int64_t cutoff_len = 2048;
  bool train_on_prompt = false;
  bool mask_history = false;         // learn only the last answer, and cut the earliest turns first
  bool add_bos_token = false;        // documents and plain labelled texts: the tokenizer puts its first token before a text
  std::string loss_scale = {};       // conversations: schemes of the key loss_scale, "" or joined by '+' (token_weights.h)
  std::string query_prompt = {};     // texts: before each anchor
  std::string document_prompt = {};  // texts: before each document
};

struct Encoded {
  // 1; for a pair: chosen, rejected; for feedback: the answer, the other answer; for texts: the anchor, then each document; for
  // a ranking: the query with each document
  std::vector<EncodedSequence> sequences;
  bool truncated = false;
};

/// Returns how many tokens of an exchange's source and target fit into `budget`, at most the tokens that exist. Cuts the longer
/// part first, and both in proportion if both are long.
std::pair<std::int64_t, std::int64_t> fit_exchange(std::int64_t source, std::int64_t target, std::int64_t budget);

/// Immutable and thread-safe.
class Encoder {
 public:
  /// Throws ConfigError if the template does not support the options.
  Encoder(ChatTemplate chat_template, const EncoderOptions& options);

  /// Returns one sample, or several if the model's own template shows earlier answers differently from the way the model
  /// generates them (ChatTemplate::training_samples()); only conversations become several. A label's weight is the record's
  /// weight times the weight of its text part: the message's weight if it has one, else loss_scale's. Throws Error (without the
  /// place) if a text is not valid UTF-8, if a call is not valid JSON, or if weights appear on questions, in samples other
  /// than conversations, or without `weighs_labels`, because they would have no effect. A sample has no labels if the whole
  /// answer is cut off. Empty answers are never learned: a pair with one yields no sample, nor does a conversation without
  /// another answer.
  std::variant<std::vector<Encoded>, DropReason> encode(const Conversation& conversation) const;
  /// Appends the first message's text and the document's end, uncut. Stage pt joins these ids and cuts them into blocks.
  void append_document(const Conversation& conversation, std::vector<std::int32_t>& ids) const;

  const ChatTemplate& chat_template() const { return template_; }
  const EncoderOptions& options() const { return options_; }
  /// The id that starts every block of joined documents, if the tokenizer has one.
  std::optional<std::int32_t> block_start() const;

 private:
  std::vector<Encoded> encode_kind(const Conversation& conversation, const std::vector<bool>& learned) const;
  Encoded encode_document(const Conversation& conversation) const;
  std::vector<Encoded> encode_conversation(const Conversation& conversation, const std::vector<bool>& learned) const;
  Encoded join_turns(const TrainingSample& turns, const Conversation& conversation, const std::vector<bool>& learned) const;
  void append_prompt(const Exchange& turn, std::int64_t count, float weight, EncodedSequence& sequence) const;
  std::vector<bool> learned_answers(const Conversation& conversation) const;
  Encoded encode_pair(const Conversation& conversation) const;
  Encoded encode_feedback(const Conversation& conversation) const;
  Encoded encode_labelled(const Conversation& conversation) const;
  Encoded encode_texts(const Conversation& conversation) const;
  Encoded encode_ranking(const Conversation& conversation) const;

  ChatTemplate template_;
  EncoderOptions options_;
  TokenWeights weights_;
  std::string document_end_;
};

}  // namespace qft::encode
