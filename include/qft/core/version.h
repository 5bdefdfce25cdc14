// The version of qft, as --version prints it and files record it.
#pragma once

#include <string_view>

namespace qft {

/// "0.1.0": the version of the CMake project.
std::string_view version();

}  // namespace qft
