#include "stored_format.h"

namespace qft::model {

std::unique_ptr<StoredFormat> make_stored_format(const StoredQuantization& stored) {
  switch (stored.method) {
    case StoredMethod::fp8:
      return make_fp8_format(stored);
    case StoredMethod::gptq:
      return make_gptq_format(stored);
    case StoredMethod::awq:
      return make_awq_format(stored);
    default:
      return make_bitsandbytes_format();
  }
}

}  // namespace qft::model
