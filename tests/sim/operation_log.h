// A log of the operations on the device, for programs and tests that count them or look at their operands.
#pragma once

#include <string>

#include "host_call.h"

namespace qft::sim {

/// Adds a line of JSON to the file named by QFT_SIM_LOG: the operation and, of each tensor among its operands, sizes, strides,
/// type and the greatest power of two, at most 512, that divides its address. Does nothing without that variable.
void log_operation(const std::string& name, const Tensors& operands);

}  // namespace qft::sim
