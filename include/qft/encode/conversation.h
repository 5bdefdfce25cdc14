// A conversation with an answer to learn. Every source format becomes one before it is encoded.
#pragma once

#include "qft/core/python_json.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qft::encode {

enum class Role : std::uint8_t { user, assistant, observation };
/// Whether the model generates messages with this role.
constexpr bool is_answer(Role role) {
  return role == Role::assistant;
}

/// A tool call.
struct Call {
  std::string name;
  Json arguments = Json::object();  // always an object
  std::string id = {};              // empty: absent in the data
  bool operator==(const Call&) const = default;
};

/// An answer is thought + text + calls, in this order. Adjacent answers and calls in the data form one message, and so do the
/// results of parallel calls.
struct Message {
  Role role = Role::user;
  std::string text;
  std::optional<bool> loss = {};     // whether the message is learned; unset if the data does not say
  std::optional<float> weight = {};  // weight of the text; unset if the data has none: then loss_scale's schemes apply
  std::optional<std::string> thought =
      {};                                  // answers only: the thought from a separate key; a thought inside the text stays there
  std::vector<Call> calls = {};            // answers only
  std::string name = {}, call_id = {};     // observations only: the tool's name, and the id of the answered call
  std::vector<Message> more_results = {};  // observations only: the results after the first one

  /// True for an answer without text, thought and calls.
  bool is_empty() const;
  bool operator==(const Message&) const = default;
};

/// A document that belongs to an anchor or a query.
struct Passage {
  std::string text;
  std::string system = {};  // the instruction; instead of the conversation's, if has_system
  bool has_system = false;
  bool relevant = false;
};

/// A record as a conversation. Users and observations have even indices, answers odd ones.
struct Conversation {
  std::vector<Message> prompt;  // ends with a user's or observation's turn
  // 1: the answer; 2: chosen and rejected, or the answer and the answer to another question
  std::vector<Message> responses;
  std::string answer_fault;       // why the answer is missing, if the record has something else in its place
  std::vector<Passage> passages;  // of the prompt, which is one question; the relevant ones first
  std::optional<bool> desirable;  // whether the answer is desirable; unset if the data has no such tag
  std::string label;              // the classifier's target, as text for parse_targets(); empty: absent in the data
  std::string system;             // empty: the template's default, unless has_system
  // messages begin with a system message; the model's own template shows even an empty one
  bool has_system = false;
  bool thinking_note = false;             // LLaMA-Factory's templates add its note on reasoning after the system message
  Json tools = Json::array();             // tool descriptions, each an object
  Json documents = Json::array();         // texts for the model's own template, each an object
  Json template_kwargs = Json::object();  // variables for the model's own template, from this record
  std::string category;                   // empty: the dataset's name
  float weight = 1.0F;                    // the record's weight; multiplies the weights of its labels
  std::vector<std::pair<std::string, std::string>> tags;
};

}  // namespace qft::encode
