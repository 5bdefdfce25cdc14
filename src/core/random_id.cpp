#include "qft/core/random_id.h"

#include <random>

namespace qft {

std::string random_hex(int digits) {
  std::random_device source;
  std::string text;
  for (int i = 0; i < digits; ++i) text += "0123456789abcdef"[source() % 16];
  return text;
}

}  // namespace qft
