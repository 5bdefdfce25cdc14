// Settings of the MPI library.
#pragma once

#include <string>

namespace qft::comm {

/// Returns the value of one of the library's settings, however it was set ("btl_tcp_if_include" of Open MPI). Empty if there is
/// no such setting, or if it is not text. Not collective; requires that MPI runs.
std::string mpi_setting(const std::string& name);

}  // namespace qft::comm
