// The optimizers: the values of the key `optim`, in the order of the help, and the names in DeepSpeed's files. The one list of
// them: optim makes its table of rules from it.
#pragma once

#include <initializer_list>
#include <string_view>

namespace qft::config {

struct OptimizerNames {
  std::string_view name;                              // the rule's name, for messages
  std::initializer_list<const char*> optim;           // the values of `optim` with the same meaning
  std::string_view plain = {};                        // the value of `optim` that DeepSpeed's names mean
  std::initializer_list<const char*> deepspeed = {};  // empty: DeepSpeed has no optimizer with this rule
};

// ROW(RULE, ...): the function RULE_rule() of src/optim returns the rule, the other arguments are its OptimizerNames. A macro,
// because config cannot see the rules.
// clang-format off
#define QFT_OPTIMIZERS(ROW)                                                                                                     \
  ROW(adamw, "AdamW", {"adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw"}, "adamw", {"AdamW", "Adam", "adamw", "adam"})   \
  ROW(lion, "Lion", {"lion_32bit", "lion"}, "lion", {"Lion", "lion"})                                                           \
  ROW(sgd, "SGD", {"sgd"}, "sgd", {"SGD"})                                                                                      \
  ROW(adamw_8bit, "8-bit AdamW", {"adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"})                                          \
  ROW(muon, "Muon", {"muon"})                                                                                                   \
  ROW(adafactor, "Adafactor", {"adafactor"}, "adafactor", {"Adafactor"})                                                        \
  ROW(galore, "GaLore", {"galore_adamw"})                                                                                       \
  ROW(apollo, "APOLLO", {"apollo_adamw"})
// clang-format on

#define QFT_OPTIMIZER_NAMES(RULE, ...) {__VA_ARGS__},
inline constexpr OptimizerNames kOptimizers[] = {QFT_OPTIMIZERS(QFT_OPTIMIZER_NAMES)};
#undef QFT_OPTIMIZER_NAMES

/// The remedy in errors about optimizers of other tools.
inline constexpr std::string_view kOptimizersHere = "qft help optim lists the optimizers that qft has";

}  // namespace qft::config
