// The rules there are, each in a file of its own. Private to optim.
#pragma once

#include "qft/optim/rule.h"

#include <memory>

namespace qft::optim {

/// The update of torch.optim.AdamW (Loshchilov & Hutter 2019).
std::unique_ptr<Rule> make_adamw(const Hyper& hyper);
/// Lion (Chen et al. 2023).
std::unique_ptr<Rule> make_lion(const Hyper& hyper);

}  // namespace qft::optim
