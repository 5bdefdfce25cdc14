// Communicators over MPI for host memory.
#pragma once

#include "qft/comm/communicator.h"

#include <memory>
#include <string>

#include <mpi.h>

namespace qft::comm {

/// A duplicate of `comm`, freed with the result; one rank gives the self backend. Collective over `comm`.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, std::string name);

}  // namespace qft::comm
