// The optimizers by name: the values of the key `optim`, in the order of the help, and the names in DeepSpeed's files. optim has
// the rules; its tests compare both tables.
#pragma once

#include <array>
#include <initializer_list>
#include <iterator>
#include <string_view>

namespace qft::config {

struct OptimizerNames {
  std::string_view name;                              // the rule's name, for messages
  std::initializer_list<const char*> optim;           // the values of `optim` with the same meaning
  std::string_view plain = {};                        // the value of `optim` that DeepSpeed's names mean
  std::initializer_list<const char*> deepspeed = {};  // empty: DeepSpeed has no optimizer with this rule
};

inline constexpr OptimizerNames kOptimizers[] = {
    {"AdamW", {"adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw"}, "adamw", {"AdamW", "Adam", "adamw", "adam"}},
    {"Lion", {"lion_32bit", "lion"}, "lion", {"Lion", "lion"}},
    {"SGD", {"sgd"}, "sgd", {"SGD"}},
    {"8-bit AdamW", {"adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"}},
    {"Muon", {"muon"}},
    {"Adafactor", {"adafactor"}, "adafactor", {"Adafactor"}},
    {"GaLore", {"galore_adamw"}},
    {"APOLLO", {"apollo_adamw"}},
};

/// "qft has AdamW, Lion ... and APOLLO", for the errors about other optimizers.
inline constexpr auto kOptimizersText = [] {
  std::array<char, 256> text{};  // zero at its end
  std::size_t length = 0;
  const auto add = [&](std::string_view part) {
    for (const char letter : part) text[length++] = letter;
  };
  add("qft has ");
  for (const OptimizerNames& row : kOptimizers) {
    add(&row == kOptimizers ? "" : &row + 1 == std::end(kOptimizers) ? " and " : ", ");
    add(row.name);
  }
  return text;
}();
inline constexpr std::string_view kOptimizersHere = kOptimizersText.data();

}  // namespace qft::config
