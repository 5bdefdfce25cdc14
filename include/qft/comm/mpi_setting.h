// The MPI library's own settings.
#pragma once

#include <string>

namespace qft::comm {

/// What the library holds for one of its settings, wherever it was set ("btl_tcp_if_include" of Open MPI); empty where it has
/// none of that name, or no text. Not collective; while MPI runs.
std::string mpi_setting(const std::string& name);

}  // namespace qft::comm
