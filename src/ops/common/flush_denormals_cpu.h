// Avoids the processor's slow path for denormal numbers.
#pragma once

#if defined(__SSE2__)
#include <pmmintrin.h>
#endif

namespace qft::ops::cpu {

/// While alive, makes this thread treat fp32 denormals as zero, as bf16 products do. On some processors each denormal makes a
/// product a hundred times slower.
class FlushDenormals {
 public:
  FlushDenormals() { set(before_ | kFlushed); }
  ~FlushDenormals() { set(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__SSE2__)
  static constexpr unsigned kFlushed = _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON;
  static void set(unsigned state) { _mm_setcsr(state); }
  const unsigned before_ = _mm_getcsr();
#else
  static constexpr unsigned kFlushed = 0;
  static void set(unsigned) {}
  const unsigned before_ = 0;
#endif
};

}  // namespace qft::ops::cpu
