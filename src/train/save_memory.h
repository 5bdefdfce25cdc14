// Memory that a save takes before its collectives. Private to train.
#pragma once

#include <functional>
#include <string>

#include "qft/comm/communicator.h"

namespace qft::train {

/// Runs `take`, which takes memory for `what` on this rank and is not collective. Where one rank has too little, all throw the
/// same Error: in a collective that it never came to, the others would wait for it. Collective.
void take_memory(comm::Communicator& comm, const std::string& what, const std::function<void()>& take);

}  // namespace qft::train
