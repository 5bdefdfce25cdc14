#pragma once
#include "qft/comm/session.h"

namespace qft {

/// Returns the communicator of all ranks of a test under mpirun.
inline comm::Communicator& world() {
  return comm::Session::current().world();
}

}  // namespace qft
