// Chips that compiled code runs on. Does not need CUDA, so that tests run anywhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qft::cuda {

/// Compiled code for one chip; 80 means 8.0, as in sm_80.
struct Code {
  int chip = 0;
  char only = '\0';  ///< 'a': only this chip; 'f': its family, as for all machine code
  bool ptx = false;  ///< PTX, which the driver compiles for its chip

  /// Returns true for chips that can run the code: for machine code, the same major version and not older; for PTX, any chip that
  /// is not older.
  bool runs_on(int other) const;
};

/// Parses nvcc's --generate-code options in `options`: each "arch=...,code=sm_90" and "...,code=[sm_80,compute_80]".
std::vector<Code> compiled_code(std::string_view options);

/// Returns the reason why a chip cannot run `owner` kernels, compiled with these options; empty if the chip can run them, or if
/// the options name no code.
std::string chip_obstacle(int chip, std::string_view owner, std::string_view options);

}  // namespace qft::cuda
