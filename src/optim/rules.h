// The rules there are, each in a file of its own. Private to optim.
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

/// The update of torch.optim.SGD, of which weight decay is a part of the gradient.
std::unique_ptr<Rule> make_sgd(const Hyper& hyper);
std::vector<StateSpec> sgd_state(const Param& param, const Hyper& hyper, const Precision& precision);

/// AdamW with moments of 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"), as bitsandbytes has it.
std::unique_ptr<Rule> make_adamw_8bit(const Hyper& hyper);
std::vector<StateSpec> adamw_8bit_state(const Param& param, const Hyper& hyper, const Precision& precision);

/// Muon (Jordan et al. 2024) with the update of torch.optim.Muon for matrices of layers, AdamW for all else.
std::unique_ptr<Rule> make_muon(const Hyper& hyper);
std::vector<StateSpec> muon_state(const Param& param, const Hyper& hyper, const Precision& precision);
double muon_operations(const Param& param);

/// GaLore (Zhao et al. 2024) for matrices of layers, AdamW for all else.
std::unique_ptr<Rule> make_galore(const Hyper& hyper);
std::vector<StateSpec> galore_state(const Param& param, const Hyper& hyper, const Precision& precision);

/// APOLLO (Zhu et al. 2024) for matrices of layers, AdamW for all else.
std::unique_ptr<Rule> make_apollo(const Hyper& hyper);
std::vector<StateSpec> apollo_state(const Param& param, const Hyper& hyper, const Precision& precision);

/// A matrix, or a stack of them, of a layer: not embedding and head.
bool of_layer(const Param& param);

/// Adafactor (Shazeer & Stern 2018) as transformers' Adafactor with scale_parameter and relative_step off, which is what the
/// Trainer makes of it.
std::unique_ptr<Rule> make_adafactor(const Hyper& hyper);
std::vector<StateSpec> adafactor_state(const Param& param, const Hyper& hyper, const Precision& precision);
bool adafactor_whole(const Param& param);

/// What is left of the update of a part of a whole parameter once `grads` is what its owner made of it.
void apply_whole(const Update& update);

/// Calls body for pieces of the update that stay in the cache, with masters, gradients and states of half types in fp32, and
/// rounds what it made of masters and states once.
void in_pieces(const Update& update, const std::function<void(const Update& piece)>& body);

}  // namespace qft::optim
