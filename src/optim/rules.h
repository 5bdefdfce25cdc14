// All rules; each has a source file. Private to optim.
#pragma once

#include "qft/optim/rule.h"

#include <array>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace qft::optim {

/// The update of torch.optim.AdamW (Loshchilov & Hutter 2019).
std::unique_ptr<Rule> make_adamw(const Hyper& hyper);
inline constexpr std::array<std::string_view, 2> kAdamWState = {"exp_avg", "exp_avg_sq"};
/// Lion (Chen et al. 2023).
std::unique_ptr<Rule> make_lion(const Hyper& hyper);

/// The update of torch.optim.SGD, in which weight decay is part of the gradient.
std::unique_ptr<Rule> make_sgd(const Hyper& hyper);
std::vector<StateSpec> sgd_state(const Param& param, const Hyper& hyper, const Precision& precision);

/// AdamW with 8-bit moments (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"), as in bitsandbytes.
std::unique_ptr<Rule> make_adamw_8bit(const Hyper& hyper);
std::vector<StateSpec> adamw_8bit_state(const Param& param, const Hyper& hyper, const Precision& precision);

/// Muon (Jordan et al. 2024) with the update of torch.optim.Muon for matrices of layers, AdamW for all other parameters.
std::unique_ptr<Rule> make_muon(const Hyper& hyper);
std::vector<StateSpec> muon_state(const Param& param, const Hyper& hyper, const Precision& precision);
double muon_operations(const Param& param);

/// GaLore (Zhao et al. 2024) for matrices of layers, AdamW for all other parameters.
std::unique_ptr<Rule> make_galore(const Hyper& hyper);
std::vector<StateSpec> galore_state(const Param& param, const Hyper& hyper, const Precision& precision);

/// APOLLO (Zhu et al. 2024) for matrices of layers, AdamW for all other parameters.
std::unique_ptr<Rule> make_apollo(const Hyper& hyper);
std::vector<StateSpec> apollo_state(const Param& param, const Hyper& hyper, const Precision& precision);

/// True for a matrix, or a stack of matrices, of a layer; false for embedding and head.
bool of_layer(const Param& param);

/// Adafactor (Shazeer & Stern 2018) as in transformers' Adafactor with scale_parameter and relative_step off, the Trainer's
/// settings.
std::unique_ptr<Rule> make_adafactor(const Hyper& hyper);
std::vector<StateSpec> adafactor_state(const Param& param, const Hyper& hyper, const Precision& precision);
bool adafactor_whole(const Param& param);

/// Finishes the update of a part of a whole parameter, after its owner has replaced `grads`.
void apply_whole(const Update& update);

/// Calls `body` for pieces of the update that fit in the cache. Masters, gradients and states of half types are passed in fp32;
/// updated masters and states are rounded once.
void in_pieces(const Update& update, const std::function<void(const Update& piece)>& body);

}  // namespace qft::optim
