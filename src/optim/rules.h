// The rules: NAME_rule() for each row of QFT_OPTIMIZERS, in its own source file; and what rules share. Private to optim.
#pragma once

#include "qft/config/optimizers.h"
#include "qft/optim/rule.h"

#include <array>
#include <functional>
#include <memory>
#include <string_view>

namespace qft::optim {

#define QFT_DECLARE_RULE(RULE, ...) RuleSpec RULE##_rule();
QFT_OPTIMIZERS(QFT_DECLARE_RULE)
#undef QFT_DECLARE_RULE

/// RuleSpec::make of rule R, whose constructor takes the hyper-parameters.
template <class R>
std::unique_ptr<Rule> make_rule(const Hyper& hyper) {
  return std::make_unique<R>(hyper);
}

/// The update and the state that some rules use for a part of the parameters: torch.optim.AdamW's.
std::unique_ptr<Rule> make_adamw(const Hyper& hyper);
inline constexpr std::array<std::string_view, 2> kAdamWState = {"exp_avg", "exp_avg_sq"};

/// True for a matrix, or a stack of matrices, of a layer; false for embedding and head.
bool of_layer(const Param& param);

/// Finishes the update of a part of a whole parameter, after its owner has replaced `grads`.
void apply_whole(const Update& update);

/// Calls `body` for pieces of the update that fit in the cache. Masters, gradients and states of half types are passed in fp32;
/// updated masters and states are rounded once.
void in_pieces(const Update& update, const std::function<void(const Update& piece)>& body);

}  // namespace qft::optim
