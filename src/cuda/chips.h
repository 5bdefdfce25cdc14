// Which chips machine code runs on. No CUDA here: tests run it anywhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qft::cuda {

/// 8.0 is 80, as in sm_80.
struct Code {
  int chip = 0;
  char only = '\0';  ///< 'a': for this chip alone; 'f': for its family, as all machine code is
  bool ptx = false;  ///< what a driver compiles for its chip

  /// Machine code runs on chips of the same major version that are not older, PTX on all that are not older.
  bool runs_on(int other) const;
};

/// What the options of nvcc (--generate-code) in `options` ask for: each "arch=...,code=sm_90" and "...,code=[sm_80,compute_80]".
std::vector<Code> compiled_code(std::string_view options);

/// Why a chip cannot run `whose` kernels, which were compiled with these options; empty: it can, or the options do not say.
std::string chip_obstacle(int chip, std::string_view whose, std::string_view options);

}  // namespace qft::cuda
