// What every source format becomes before it is encoded: a conversation with an answer to learn.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qft::encode {

enum class Role : std::uint8_t { user, assistant, observation, function };
/// Whether the model says it.
constexpr bool is_answer(Role role) {
  return role == Role::assistant || role == Role::function;
}

struct Message {
  Role role = Role::user;
  std::string text;
  std::optional<bool> loss = {};     // whether it is learned, where the data says so
  std::optional<float> weight = {};  // what its text counts, where the data says so; loss_scale's schemes are for others
};

/// A record as a conversation. Users and observations stand at even places, answers and calls at odd ones.
struct Conversation {
  std::vector<Message> prompt;     // ends with a user's or observation's turn
  std::vector<Message> responses;  // 1: the answer; 2: chosen, rejected, or the answer and that to another question
  std::string answer_fault;        // why an answer is missing, where something else stands in its place
  std::optional<bool> desirable;   // whether the answer is liked; unset where the data has no such tag
  std::string label;               // what a classifier is to say of the text, for class_values(); empty: the data has none
  std::string system;              // empty: the template's own
  std::string tools;               // JSON list of tool descriptions; empty: none
  std::string category;            // empty: the dataset's name
  float weight = 1.0F;             // of the record: what its labels count is multiplied by it
  std::vector<std::pair<std::string, std::string>> tags;
};

}  // namespace qft::encode
