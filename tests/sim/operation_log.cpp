#include "operation_log.h"

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>

#include "raw_tensor.h"
#include <ATen/core/Tensor.h>

namespace qft::sim {
namespace {

constexpr std::uintptr_t kMostAlignment = 512;  ///< bytes, as CUDA's allocations have

std::string list(at::IntArrayRef numbers) {
  std::ostringstream text;
  for (const std::int64_t n : numbers) text << (text.tellp() > 0 ? "," : "") << n;
  return "[" + text.str() + "]";
}

}  // namespace

void log_operation(const std::string& name, const Tensors& operands) {
  static const char* const path = std::getenv("QFT_SIM_LOG");
  if (path == nullptr) return;
  static auto* const file = new std::ofstream(path, std::ios::app);
  static std::mutex mutex;
  std::ostringstream line;
  for (const at::Tensor& t : operands) {
    if (!on_sim(t)) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(t.const_data_ptr()) | kMostAlignment;
    line << (line.tellp() > 0 ? "," : "") << R"({"sizes":)" << list(t.sizes()) << R"(,"strides":)" << list(t.strides())
         << R"(,"type":")" << t.scalar_type() << R"(","aligned":)" << (std::uintptr_t{1} << std::countr_zero(address)) << "}";
  }
  const std::lock_guard lock(mutex);
  *file << R"({"operation":")" << name << R"(","operands":[)" << line.str() << "]}" << std::endl;
}

}  // namespace qft::sim
