#include "qft/core/version.h"

namespace qft {

std::string_view version() {
  return QFT_VERSION;
}

}  // namespace qft
