// Memory that a save takes before its collectives. Private to train.
#pragma once

#include "qft/comm/communicator.h"

#include <functional>
#include <string>

namespace qft::train {

/// Runs `take`, which allocates memory for `what` on this rank and is not collective. If one rank has too little, all throw the
/// same Error, with advice for `device`, where the model is: otherwise the others would wait for it in the next collective.
/// Collective.
void take_memory(comm::Communicator& comm, c10::Device device, const std::string& what, const std::function<void()>& take);

}  // namespace qft::train
