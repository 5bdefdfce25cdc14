// Reads lines "TOTAL key=value ..." and prints the warm-up steps of a run with TOTAL steps and these keys.
#include "qft/config/run_config.h"
#include "qft/core/program.h"

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

int main() {
  return qft::run_program([] {
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::int64_t total = 0;
      words >> total;
      std::vector<std::string> keys;
      for (std::string key; words >> key;) keys.push_back(key);
      std::cout << qft::config::load_run_config({}, keys).training.warmup(total) << "\n";
    }
    return 0;
  });
}
