// Loads a shared library on first use, so that programs that contact no hub start without it.
#pragma once

#include <initializer_list>

namespace qft::net {

class Library {
 public:
  /// Loads the first of `names` that exists; throws Error with dlopen's last message and `remedy`.
  Library(std::initializer_list<const char*> names, const char* remedy);

  /// Sets `function` to the symbol `name`; throws Error if the library lacks it.
  template <class F>
  void find(const char* name, F*& function) const {
    function = reinterpret_cast<F*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  const char* name_ = nullptr;
  void* object_ = nullptr;  ///< never closed: other threads may use it when the process ends
};

}  // namespace qft::net
