#include "qft/device/wait_check.h"

#include "qft/core/error.h"
#include "qft/device/backends.h"

#include <atomic>
#include <string_view>

#include "wait_refusal.h"
#include <c10/util/Exception.h>

namespace qft::device {
namespace {

std::atomic<bool> refused = false;
constexpr std::string_view kRefusal = "the host may not wait for a device here";

class Refusal {
 public:
  explicit Refusal(const Backend& backend) : backend_(backend) { set(true); }
  ~Refusal() { set(false); }
  Refusal(const Refusal&) = delete;
  Refusal& operator=(const Refusal&) = delete;

 private:
  void set(bool refuse) {
    refused = refuse;
    backend_.refuse_waits(refuse);
  }
  const Backend& backend_;
};

}  // namespace

void check_wait_allowed(const char* what) {
  TORCH_CHECK(!refused, kRefusal, ": ", what);
}

void without_waits(c10::Device device, bool armed, const std::function<std::string()>& where, const std::function<void()>& body) {
  if (!armed || device.is_cpu()) return body();
  const Backend& backend = backend_of(device);
  try {
    const Refusal refusal(backend);
    body();
  } catch (const c10::Error& e) {
    const std::string_view what = e.what();
    if (what.find(kRefusal) == std::string_view::npos && !backend.is_refusal(what)) throw;
    fail(
        "debug_sync: the host would wait for {} in {} (see the backtrace); without debug_sync training continues with this "
        "wait: {}",
        device.str(), where(), what);
  }
}

}  // namespace qft::device
