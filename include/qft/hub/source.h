// What lies on a hub, and where the hubs are: their addresses, tokens and caches, as their own clients read them from the
// environment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
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

/// Throws ConfigError where the id is not owner/name, or the revision could lead out of a folder.
void check(const Source& source);

/// The revision, or the hub's default branch.
std::string revision_of(const Source& source);

/// What the environment says of a hub.
struct Settings {
  std::string endpoint;  ///< HF_ENDPOINT; MODELSCOPE_ENDPOINT, MODELSCOPE_DOMAIN
  std::string token;     ///< HF_TOKEN or the file that `hf auth login` writes; MODELSCOPE_API_TOKEN
  std::string token_from;
  std::filesystem::path cache;  ///< HF_HUB_CACHE, HF_HOME; MODELSCOPE_CACHE
  std::string cache_key;        ///< the variable to set for another cache
};
Settings settings_of(Hub hub);

/// The variable that forbids downloads (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE, HF_DATASETS_OFFLINE), as "NAME=value"; empty: none.
std::string offline_by();

/// The hub of names that say none: `word` is "huggingface" or "modelscope"; "auto": ModelScope with USE_MODELSCOPE_HUB=1, else
/// Hugging Face.
Hub default_hub(std::string_view word);

/// `text` with the token as ***: for what a server says.
std::string redacted(std::string text, const std::string& token);

}  // namespace qft::hub
