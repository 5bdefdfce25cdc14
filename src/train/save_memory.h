// Allocates the memory of a save before its collectives. Private to train.
#pragma once

#include "qft/comm/communicator.h"

#include <functional>
#include <string>

namespace qft::train {

/// Runs `take`, which allocates memory for `what` on this rank and is not collective. If one rank has too little memory, all
/// ranks throw the same Error, with advice for `device`, the model's device. Otherwise the other ranks would wait for it in the
/// next collective. Collective.
void take_memory(comm::Communicator& comm, c10::Device device, const std::string& what, const std::function<void()>& take);

}  // namespace qft::train
