// A shared library that is loaded when it is first needed: programs that ask no hub start without it.
#pragma once

#include <initializer_list>

namespace qft::net {

class Library {
 public:
  /// Loads the first of `names` that is there; throws Error with what dlopen said of the last, and `remedy`.
  Library(std::initializer_list<const char*> names, const char* remedy);

  /// Sets `function` to the symbol of this name; throws Error where the library has none.
  template <class F>
  void find(const char* name, F*& function) const {
    function = reinterpret_cast<F*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  const char* name_ = nullptr;
  void* object_ = nullptr;  ///< never closed: other threads may be in it when the process ends
};

}  // namespace qft::net
