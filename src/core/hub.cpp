#include "qft/core/hub.h"

#include "qft/core/file_ending.h"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

namespace qft {

bool is_hub_name(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == name.npos || slash != name.rfind('/') || name.starts_with('.')) return false;
  if (is_data_file(name)) return false;
  std::error_code code;
  return slash > 0 && name.find(' ') == name.npos && !std::filesystem::exists(name.substr(0, slash), code);
}

std::string fetch_hint(std::string_view what, std::string_view name) {
  return fmt::format(
      "If it is on a hub, fetch it on a node with network access (a login node): 'qft fetch {}{}'. It goes into a cache that all "
      "nodes must see (HF_HOME); or give --to DIR and name that folder",
      what == "dataset" ? "--dataset " : "", name);
}

}  // namespace qft
