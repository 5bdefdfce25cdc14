// Writes the name, start and duration of every kernel and copy that a program runs on a GPU, without touching the program: the
// driver loads this library (CUDA_INJECTION64_PATH), and CUPTI hands it the records.
//   g++ -O2 -shared -fPIC -o kernel_times.so bench/kernel_times.cpp -I$CUDA/include -L$CUPTI -l:libcupti.so.13
//   CUDA_INJECTION64_PATH=$PWD/kernel_times.so KERNEL_TIMES=out.tsv PROGRAM...
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cupti.h>
#include <mutex>

namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
std::FILE* file = nullptr;
std::mutex mutex;

void write(const CUpti_Activity* record) {
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
    const auto* k = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
    std::fprintf(file, "%llu\t%llu\t%u\t%d,%d,%d\t%s\n", static_cast<unsigned long long>(k->start),
                 static_cast<unsigned long long>(k->end - k->start), k->streamId, k->gridX, k->gridY, k->gridZ, k->name);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* m = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
    std::fprintf(file, "%llu\t%llu\t%u\t%llu\tcopy of kind %u\n", static_cast<unsigned long long>(m->start),
                 static_cast<unsigned long long>(m->end - m->start), m->streamId, static_cast<unsigned long long>(m->bytes),
                 m->copyKind);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* m = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    std::fprintf(file, "%llu\t%llu\t%u\t%llu\tfill\n", static_cast<unsigned long long>(m->start),
                 static_cast<unsigned long long>(m->end - m->start), m->streamId, static_cast<unsigned long long>(m->bytes));
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = kBufferBytes;
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (valid > 0 && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) write(record);
  std::fflush(file);
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(1);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* const path = std::getenv("KERNEL_TIMES");
  if (path == nullptr || (file = std::fopen(path, "a")) == nullptr) return 1;
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
    if (cuptiActivityEnable(kind) != CUPTI_SUCCESS) std::fprintf(file, "no records of kind %d\n", static_cast<int>(kind));
  cuptiActivityFlushPeriod(500);  // ms: a program that ends by _exit loses little
  std::atexit(finish);
  std::at_quick_exit(finish);
  return 1;
}
