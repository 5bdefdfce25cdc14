#include "qft/config/expand_path.h"

#include "qft/core/error.h"

#include <cctype>
#include <cstdlib>

namespace qft::config {
namespace {

std::string variable(std::string_view name, std::string_view path, std::string_view where) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr) {
    fail_config("{}: the path '{}' uses the environment variable {}, which is not set", where, path, name);
  }
  return value;
}

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

}  // namespace

std::string expand_path(std::string_view path, std::string_view where) {
  std::string out;
  std::size_t i = 0;
  if (path == "~" || path.starts_with("~/")) {
    out = variable("HOME", path, where);
    i = 1;
  }
  while (i < path.size()) {
    const bool braced = path.substr(i).starts_with("${");
    const bool bare = !braced && path[i] == '$' && i + 1 < path.size() && is_name(path[i + 1]);
    if (!braced && !bare) {
      out += path[i++];
      continue;
    }
    i += braced ? 2 : 1;
    std::size_t end = i;
    while (end < path.size() && (braced ? path[end] != '}' : is_name(path[end]))) ++end;
    if (end == path.size() && braced) fail_config("{}: the path '{}' lacks a closing brace", where, path);
    std::string_view name = path.substr(i, end - i);
    if (name.starts_with("oc.env:")) name.remove_prefix(7);
    out += variable(name, path, where);
    i = end + braced;
  }
  return out;
}

}  // namespace qft::config
