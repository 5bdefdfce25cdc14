// Wraps HDF5 calls: under one lock, without HDF5's printing, with failures as Error. Private to io.
#pragma once

#include "qft/core/error.h"
#include "qft/io/hdf5.h"

#include <mutex>
#include <string>

#include <hdf5.h>

namespace qft::io::h5 {

/// Hold this around every sequence of HDF5 calls. The first Lock turns HDF5's printing off.
class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

/// Returns and clears HDF5's message stack of the last failure, as one line, innermost reason last.
std::string take_error_stack();

/// Throws Error "<what> <label>: <stack>" if an HDF5 call returned a negative value.
template <class T>
T check(T result, const char* what, const std::string& label) {
  if (result < 0) [[unlikely]]
    fail("{} '{}': {}", what, label, take_error_stack());
  return result;
}

/// Wraps an identifier that an HDF5 call returned; `close` is HDF5's function for it. Throws like check() if the
/// call failed.
Handle own(hid_t id, Handle::Close close, const char* what, const std::string& label);

hid_t file_type(Type type);
hid_t memory_type(Type type);

}  // namespace qft::io::h5
