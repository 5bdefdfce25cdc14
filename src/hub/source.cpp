#include "qft/hub/source.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <initializer_list>

namespace qft::hub {
namespace {

namespace fs = std::filesystem;

/// A variable that is set, and its value.
struct Variable {
  std::string name, value;
};

Variable first_of(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return {name, value};
  return {};
}

/// Expands ~ and $NAME as the hubs' clients do.
fs::path expanded(const std::string& text) {
  std::string out;
  std::size_t i = 0;
  if (text == "~" || text.starts_with("~/")) out = first_of({"HOME"}).value, i = 1;
  while (i < text.size()) {
    const bool braced = text[i] == '$' && i + 1 < text.size() && text[i + 1] == '{';
    std::size_t end = i + (braced ? 2 : 1);
    const std::size_t begin = end;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
    const char* value = text[i] == '$' && end > begin ? std::getenv(text.substr(begin, end - begin).c_str()) : nullptr;
    if (value == nullptr || (braced && text[end] != '}')) {
      out += text[i++];
      continue;
    }
    out += value;
    i = end + (braced ? 1 : 0);
  }
  return fs::path(out).lexically_normal();
}

std::string stripped(std::string text) {
  const auto blank = [](unsigned char c) { return std::isspace(c) != 0; };
  text.erase(std::find_if_not(text.rbegin(), text.rend(), blank).base(), text.end());
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), blank));
  return text;
}

std::string endpoint_of(const Variable& variable, std::string endpoint) {
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const std::size_t scheme = endpoint.find("://"),
                    slash = endpoint.find_first_of("/?#", scheme == endpoint.npos ? 0 : scheme + 3);
  if (slash != endpoint.npos && endpoint.find('@', slash) != endpoint.npos)  // part of a password: do not show it
    fail_config("{} has an '@' after a '/', '?' or '#': in user and password write all but letters and digits as %XX: '/' as %2F",
                variable.name);
  return endpoint.find("://") == endpoint.npos ? "https://" + endpoint : endpoint;
}

fs::path home() {
  return first_of({"HOME"}).value;
}

Settings huggingface() {
  Settings s;
  const Variable endpoint = first_of({"HF_ENDPOINT"});
  s.endpoint = endpoint.name.empty() ? "https://huggingface.co" : endpoint_of(endpoint, endpoint.value);
  const Variable xdg = first_of({"XDG_CACHE_HOME"}), own = first_of({"HF_HOME"});
  const fs::path hf_home = !own.name.empty()   ? expanded(own.value)
                           : !xdg.name.empty() ? expanded(xdg.value) / "huggingface"
                                               : home() / ".cache" / "huggingface";
  const Variable cache = first_of({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  s.cache = cache.name.empty() ? hf_home / "hub" : expanded(cache.value);
  s.cache_key = cache.name.empty() ? "HF_HOME" : cache.name;
  const Variable token = first_of({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  s.token = stripped(token.value);
  s.token_from = token.name;
  if (!s.token.empty()) return s;
  const Variable path = first_of({"HF_TOKEN_PATH"});
  const fs::path file = path.name.empty() ? hf_home / "token" : expanded(path.value);
  std::ifstream stream(file);
  std::getline(stream, s.token);
  s.token = stripped(s.token);
  s.token_from = s.token.empty() ? "" : file.string();
  return s;
}

Settings modelscope() {
  Settings s;
  const Variable endpoint = first_of({"MODELSCOPE_ENDPOINT", "MODELSCOPE_DOMAIN"});
  s.endpoint = endpoint.name.empty() ? "https://modelscope.cn" : endpoint_of(endpoint, stripped(endpoint.value));
  const Variable cache = first_of({"MODELSCOPE_CACHE"});
  s.cache = cache.name.empty() ? home() / ".cache" / "modelscope" : expanded(cache.value);
  s.cache_key = "MODELSCOPE_CACHE";
  const Variable token = first_of({"MODELSCOPE_API_TOKEN"});
  s.token = stripped(token.value);
  s.token_from = token.name;
  return s;
}

bool is_true(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word == "1" || word == "true" || word == "yes" || word == "on";
}

bool is_part_of_id(std::string_view part) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  return !part.empty() && part.size() <= 96 && std::ranges::all_of(part, allowed) && !part.starts_with('.') &&
         part.find("..") == part.npos && part.find("--") == part.npos;
}

}  // namespace

std::string_view name_of(Hub hub) {
  return hub == Hub::huggingface ? "Hugging Face" : "ModelScope";
}

std::string_view name_of(Kind kind) {
  return kind == Kind::model ? "model" : "dataset";
}

void check(const Source& source) {
  const std::string_view id = source.id;
  const std::size_t slash = id.find('/');
  if (slash == id.npos || !is_part_of_id(id.substr(0, slash)) || !is_part_of_id(id.substr(slash + 1)))
    fail_config("'{}' does not name a {} on a hub: expected owner/name, such as Qwen/Qwen3-8B", id, name_of(source.kind));
  const std::string& revision = source.revision;
  const auto allowed = [](unsigned char c) {
    return c > ' ' && c < 0x7f && std::string_view("~^:?*[\\").find(static_cast<char>(c)) == std::string_view::npos;
  };
  const auto is_dot = [](const std::filesystem::path& part) { return part == "."; };
  if (!std::ranges::all_of(revision, allowed) || std::ranges::any_of(std::filesystem::path(revision), is_dot) ||
      revision.find("..") != revision.npos || revision.starts_with('/') || revision.ends_with('/') || revision.starts_with('-') ||
      revision.size() > 255)
    fail_config("'{}' is not a revision of {}: expected a branch, a tag or a commit", revision, id);
}

std::string revision_of(const Source& source) {
  const bool modelscope = source.hub == Hub::modelscope;
  if (source.revision.empty() || (modelscope && source.revision == "main")) return modelscope ? "master" : "main";
  return source.revision;
}

Settings settings_of(Hub hub) {
  return hub == Hub::huggingface ? huggingface() : modelscope();
}

std::string offline_by() {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"}) {
    const Variable variable = first_of({name});
    if (is_true(variable.value)) return variable.name + "=" + variable.value;
  }
  return {};
}

Hub default_hub(std::string_view word) {
  if (word == "auto") return is_true(first_of({"USE_MODELSCOPE_HUB"}).value) ? Hub::modelscope : Hub::huggingface;
  return word == "modelscope" ? Hub::modelscope : Hub::huggingface;
}

std::string redacted(std::string text, const std::string& token) {
  if (token.empty()) return text;
  for (std::size_t at = text.find(token); at != text.npos; at = text.find(token, at)) text.replace(at, token.size(), "***");
  return text;
}

}  // namespace qft::hub
