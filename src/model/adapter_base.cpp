// Checks whether an adapter is loaded over the base model that it names. Names may be hub names, cache folders or paths.
#include "qft/core/log.h"
#include "qft/io/file.h"
#include "qft/io/identity.h"
#include "qft/io/model_files.h"
#include "qft/model/adapter_config.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace qft::model {
namespace {

namespace fs = std::filesystem;

/// Name suffixes for quantised versions of the same model.
constexpr std::string_view kSameWeights[] = {
    "-unsloth-bnb-4bit", "-bnb-4bit", "-bnb-8bit", "-gptq-int4", "-gptq-int8", "-awq", "-fp8", "-4bit", "-8bit", "-hf"};

std::string replaced(std::string_view text, std::string_view from, char to) {
  std::string result;
  for (auto at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    result += text.substr(0, at);
    result += to;
    text.remove_prefix(at + from.size());
  }
  return result += text;
}

/// Returns "qwen2-5-0-5b" for "Qwen/Qwen2.5-0.5B", "/models/Qwen2.5-0.5B/" and ".../models--Qwen--Qwen2.5-0.5B/snapshots/4e2f".
std::string plain_name(std::string name) {
  constexpr std::string_view kCache = "models--", kSnapshots = "/snapshots/";
  name = replaced(name, "\\", '/');
  if (const auto end = name.find(kSnapshots); end != std::string::npos && name.find(kCache) < end) name.resize(end);
  while (name.ends_with('/') || name.ends_with("/.")) name.pop_back();
  name.erase(0, name.rfind('/') + 1);
  if (name.starts_with(kCache)) name.erase(0, name.rfind("--") + 2);
  name = replaced(name, "___", '.');  // ModelScope's cache
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return std::isalnum(c) != 0               ? static_cast<char>(std::tolower(c))
           : c == '_' || c == '.' || c == ' ' ? '-'
                                              : static_cast<char>(c);
  });
  for (const std::string_view end : kSameWeights)
    if (name.ends_with(end)) name.resize(name.size() - end.size());
  return name;
}

bool same_weights(const fs::path& a, const fs::path& b) {
  const std::vector<fs::path> ours = io::weight_files(a), theirs = io::weight_files(b);
  return !ours.empty() && std::ranges::equal(ours, theirs, [](const fs::path& x, const fs::path& y) {
    return x.filename() == y.filename() && fs::file_size(x) == fs::file_size(y) &&
           io::sampled_hash(io::File::open_read(x)) == io::sampled_hash(io::File::open_read(y));
  });
}

bool is_same_model(const std::string& named, const std::string& given, const fs::path& folder) {
  if (named == given) return true;
  std::error_code code;
  if (fs::is_directory(named, code) && fs::is_directory(folder, code))
    return fs::equivalent(named, folder, code) || same_weights(named, folder);
  const std::string name = plain_name(named);
  return name == plain_name(given) || name == plain_name(folder.string());
}

}  // namespace

void warn_about_other_base(const fs::path& adapter, const std::string& given, const fs::path& folder) {
  const std::string named = read_base_model_name(adapter);
  if (named.empty() || is_same_model(named, given, folder)) return;
  log::warn_once(fmt::format(
      "adapter '{}' was trained on '{}' (base_model_name_or_path in its {}), but is loaded over '{}': if the two have "
      "different weights, the adapter will not work as trained",
      adapter.string(), named, kAdapterConfigFile, given));
}

}  // namespace qft::model
