// Reads JSON lines {"name", "kwargs", "peak", "warmup", "total", "steps"} and prints the learning rates of the first `steps`
// steps.
#include "qft/core/program.h"
#include "qft/optim/schedule.h"

#include <iostream>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

int main() {
  return qft::run_program([] {
    for (std::string line; std::getline(std::cin, line);) {
      const auto asked = nlohmann::json::parse(line);
      qft::optim::Schedule base;
      base.peak = asked.at("peak");
      base.warmup_steps = asked.at("warmup");
      base.total_steps = asked.at("total");
      const auto schedule = qft::optim::make_schedule(asked.at("name"), asked.at("kwargs"), base);
      for (std::int64_t step = 0; step < asked.at("steps").get<std::int64_t>(); ++step)
        std::cout << fmt::format("{} ", schedule.at(step));
      std::cout << "\n";
    }
    return 0;
  });
}
