#include "qft/core/error.h"
#include "qft/device/device.h"

#include "cuda_api.h"

namespace qft::device {

bool built_with_cuda() {
  return false;
}

namespace cuda {

namespace {
[[noreturn]] void no_cuda() {
  fail_config("this build has no CUDA: build with -DQFT_CUDA=ON");
}
}  // namespace

int device_count() {
  return 0;
}
void set_device(int) {
  no_cuda();
}
std::string describe(int) {
  no_cuda();
}
std::string library_version() {
  no_cuda();
}
MemoryUse memory_use(int) {
  no_cuda();
}
void reset_peak(int) {
  no_cuda();
}
void* allocate_pinned(std::size_t) {
  no_cuda();
}
void free_pinned(void*) {}
void refuse_waits(bool) {
  no_cuda();
}
void copy_bytes(void*, const void*, std::size_t) {
  no_cuda();
}

}  // namespace cuda
}  // namespace qft::device
