#include "qft/device/wait_check.h"

#include "qft/core/error.h"

#include <string_view>

#include "cuda_api.h"
#include <c10/util/Exception.h>

namespace qft::device {
namespace {

class Refusal {
 public:
  Refusal() { cuda::refuse_waits(true); }
  ~Refusal() { cuda::refuse_waits(false); }
  Refusal(const Refusal&) = delete;
  Refusal& operator=(const Refusal&) = delete;
};

bool is_refusal(std::string_view what) {
  return what.find("called a synchronizing CUDA operation") != std::string_view::npos;  // LibTorch's words
}

}  // namespace

void without_waits(c10::Device device, bool armed, const std::function<std::string()>& where, const std::function<void()>& body) {
  if (!armed || !device.is_cuda()) return body();
  try {
    const Refusal refusal;
    body();
  } catch (const c10::Error& e) {
    if (!is_refusal(e.what())) throw;
    fail(
        "debug_sync: the host would wait for {} in {}, which the backtrace shows; without debug_sync training goes on, at the "
        "cost "
        "of that wait: {}",
        device.str(), where(), e.what());
  }
}

}  // namespace qft::device
