// Distributes a matrix's rows over all cores. Private to model.
#pragma once

#include "qft/core/thread.h"

#include <algorithm>
#include <cstdint>
#include <thread>

namespace qft::model {

/// Calls f(begin, end) on all cores with parts that together cover [0, rows).
template <class F>
void for_row_parts(std::int64_t rows, const F& f) {
  const std::int64_t parts = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, rows);
  run_workers(static_cast<int>(parts), [&](int part) { f(rows * part / parts, rows * (part + 1) / parts); });
}

}  // namespace qft::model
