// Conversations to token sequences with labels, cut to cutoff_len by LLaMA-Factory's rules.
#pragma once

#include "qft/encode/chat_template.h"
#include "qft/encode/conversation.h"
#include "qft/encode/drop_reason.h"
#include "qft/encode/item.h"

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace qft::encode {

/// What a sample is: a text to continue, a conversation whose answers are learned, a pair of answers to one
/// question, an answer that is liked or not together with an answer to another question, or a conversation, with its last answer
/// or without, of which something is to be said as a whole: no token of it is a label.
enum class SampleKind { document, conversation, pair, feedback, labelled };

struct EncoderOptions {
  SampleKind kind = SampleKind::conversation;
  std::int64_t cutoff_len = 2048;
  bool train_on_prompt = false;
  bool mask_history = false;    // learn the last answer only, and cut the earliest turns first
  bool add_bos_token = false;   // documents and plain labelled texts: the tokenizer puts its first token in front of a text
  std::string loss_scale = {};  // conversations: the schemes of that key, "" or joined by '+' (token_weights.h)
};

struct Encoded {
  std::vector<EncodedSequence> sequences;  // 1; a pair has chosen, rejected; feedback the answer, the other one
  bool truncated = false;
};

/// How many tokens of a turn's source and target fit into `budget`: the longer one is cut first, both in proportion
/// if both are long. Never more than there are.
std::pair<std::int64_t, std::int64_t> fit_turn(std::int64_t source, std::int64_t target, std::int64_t budget);

/// Immutable and thread-safe.
class Encoder {
 public:
  /// Throws ConfigError where the options do not go with the template.
  Encoder(ChatTemplate chat_template, const EncoderOptions& options);

  /// What a label counts is a product: the record's weight, and that of its part of the text, which the message's own weight,
  /// else loss_scale says. Throws Error (without the place) where a text is not valid UTF-8 or a call not valid JSON, or weights
  /// stand where nothing is weighed: at questions, and in samples that are no conversations. A sample may have no labels, where
  /// the answer is cut off. A conversation is several samples where the model's own template shows earlier answers otherwise than
  /// the model says them (ChatTemplate::training_samples()); any other kind is one. An empty answer is never learned: a pair with
  /// one makes no sample, nor does a conversation without another answer.
  std::variant<std::vector<Encoded>, DropReason> encode(const Conversation& conversation) const;
  /// Appends the first message's text and the document's end, uncut: what stage pt joins and cuts into blocks.
  void append_document(const Conversation& conversation, std::vector<std::int32_t>& ids) const;

  const ChatTemplate& chat_template() const { return template_; }
  const EncoderOptions& options() const { return options_; }
  /// The id that starts every block of joined documents, if the tokenizer asks for one.
  std::optional<std::int32_t> block_start() const;

 private:
  std::vector<Encoded> encode_kind(const Conversation& conversation, const std::vector<bool>& learned) const;
  Encoded encode_document(const Conversation& conversation) const;
  std::vector<Encoded> encode_conversation(const Conversation& conversation, const std::vector<bool>& learned) const;
  Encoded lay_turns(const TrainingSample& turns, const Conversation& conversation, const std::vector<bool>& learned) const;
  void append_prompt(const Turn& turn, std::int64_t count, float weight, EncodedSequence& sequence) const;
  std::vector<bool> learned_answers(const Conversation& conversation) const;
  Encoded encode_pair(const Conversation& conversation) const;
  Encoded encode_feedback(const Conversation& conversation) const;
  Encoded encode_labelled(const Conversation& conversation) const;

  ChatTemplate template_;
  EncoderOptions options_;
  TokenWeights weights_;
  std::string document_end_;
};

}  // namespace qft::encode
