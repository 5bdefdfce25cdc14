// Names repositories on hubs, and reads the hubs' addresses, tokens and caches from the environment as the hubs' own clients do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace qft::hub {

enum class Hub : std::uint8_t { huggingface, modelscope };
enum class Kind : std::uint8_t { model, dataset };

std::string_view name_of(Hub hub);    ///< "Hugging Face"
std::string_view name_of(Kind kind);  ///< "model"

/// A repository at a revision.
struct Source {
  Hub hub = Hub::huggingface;
  Kind kind = Kind::model;
  std::string id;        ///< "owner/name"
  std::string revision;  ///< branch, tag or commit; empty: the hub's default
};

/// Throws ConfigError if the id is not owner/name, or the revision could lead out of a folder.
void check(const Source& source);

/// Returns the revision, or the hub's default branch.
std::string revision_of(const Source& source);

/// A hub's settings from the environment.
struct Settings {
  std::string endpoint;         ///< HF_ENDPOINT; MODELSCOPE_ENDPOINT, MODELSCOPE_DOMAIN
  std::string token;            ///< HF_TOKEN or the file that `hf auth login` writes; MODELSCOPE_API_TOKEN
  std::string token_from;       ///< variable or file with the token
  std::filesystem::path cache;  ///< HF_HUB_CACHE, HF_HOME; MODELSCOPE_CACHE
  std::string cache_key;        ///< variable that selects another cache
};
Settings settings_of(Hub hub);

/// Returns the variable that forbids downloads (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE, HF_DATASETS_OFFLINE) as "NAME=value", or
/// "".
std::string offline_by();

/// Returns the hub for names without one. `word` is "huggingface", "modelscope" or "auto" (ModelScope with USE_MODELSCOPE_HUB=1,
/// else Hugging Face).
Hub default_hub(std::string_view word);

/// Returns `text` with the token replaced by ***, for texts that come from a server.
std::string redacted(std::string text, const std::string& token);

}  // namespace qft::hub
