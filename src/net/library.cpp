#include "library.h"

#include "qft/core/error.h"

#include <dlfcn.h>
#include <string>

namespace qft::net {

Library::Library(std::initializer_list<const char*> names, const char* remedy) {
  std::string said;
  for (const char* name : names) {
    object_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    name_ = name;
    if (object_ != nullptr) return;
    said = dlerror();
  }
  fail("{}: {}", said, remedy);
}

void* Library::symbol(const char* name) const {
  void* found = dlsym(object_, name);
  require(found != nullptr, "{} has no {}: it is too old, or another library of that name", name_, name);
  return found;
}

}  // namespace qft::net
