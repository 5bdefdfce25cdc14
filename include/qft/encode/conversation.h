// What every source format becomes before it is encoded: a conversation with an answer to learn.
#pragma once

#include "qft/core/python_json.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qft::encode {

enum class Role : std::uint8_t { user, assistant, observation };
/// Whether the model says it.
constexpr bool is_answer(Role role) {
  return role == Role::assistant;
}

/// A call of a tool.
struct Call {
  std::string name;
  Json arguments = Json::object();  // always an object
  std::string id = {};              // empty: the data has none
  bool operator==(const Call&) const = default;
};

/// An answer is thought + text + calls, in this order. Neighbouring answers and calls of the data are one message, and so are
/// the results of calls that were made at once.
struct Message {
  Role role = Role::user;
  std::string text;
  std::optional<bool> loss = {};     // whether it is learned, where the data says so
  std::optional<float> weight = {};  // what its text counts, where the data says so; loss_scale's schemes are for others
  std::optional<std::string> thought =
      {};                                  // of an answer, where a key of its own holds it; a thought inside the text stays there
  std::vector<Call> calls = {};            // of an answer
  std::string name = {}, call_id = {};     // of an observation: the tool, and the call that it answers
  std::vector<Message> more_results = {};  // of an observation: the results after the first one

  /// True for an answer without text, thought and calls.
  bool is_empty() const;
  bool operator==(const Message&) const = default;
};

/// A record as a conversation. Users and observations stand at even places, answers at odd ones.
struct Conversation {
  std::vector<Message> prompt;            // ends with a user's or observation's turn
  std::vector<Message> responses;         // 1: the answer; 2: chosen, rejected, or the answer and that to another question
  std::string answer_fault;               // why an answer is missing, where something else stands in its place
  std::optional<bool> desirable;          // whether the answer is liked; unset where the data has no such tag
  std::string label;                      // what a classifier is to say of the text, for class_values(); empty: the data has none
  std::string system;                     // empty: the template's own, unless has_system
  bool has_system = false;                // messages begin with a system message: the model's own template shows an empty one too
  bool thinking_note = false;             // LLaMA-Factory's templates get its note on reasoning behind the system message
  Json tools = Json::array();             // tool descriptions, each an object
  Json documents = Json::array();         // texts that the model's own template may show, each an object
  Json template_kwargs = Json::object();  // variables of the model's own template, of this record alone
  std::string category;                   // empty: the dataset's name
  float weight = 1.0F;                    // of the record: what its labels count is multiplied by it
  std::vector<std::pair<std::string, std::string>> tags;
};

}  // namespace qft::encode
