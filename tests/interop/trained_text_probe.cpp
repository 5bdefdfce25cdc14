// Reads lines with a run's keys, key=value separated by tabs, and prints as JSON the texts that its trained model is saved with.
#include "qft/core/program.h"
#include "qft/engine/trained_text.h"

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

int main() {
  return qft::run_program([] {
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::vector<std::string> keys;
      for (std::string key; std::getline(words, key, '\t');) keys.push_back(key);
      const auto text = qft::engine::trained_text(qft::config::load_run_config({}, keys));
      nlohmann::ordered_json json = nlohmann::ordered_json::object();
      if (text.chat_template) json["chat_template"] = *text.chat_template;
      if (text.end_token) json["end_token"] = *text.end_token, json["end_id"] = *text.end_id;
      std::cout << json << "\n";
    }
    return 0;
  });
}
