#include "qft/hub/source.h"

#include "qft/core/error.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace qft::hub {
namespace {

/// Sets the hubs' variables for a test; all others are unset.
class Environment : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HF_TOKEN",
          "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE",
          "MODELSCOPE_CACHE", "MODELSCOPE_DOMAIN", "MODELSCOPE_ENDPOINT", "MODELSCOPE_API_TOKEN", "USE_MODELSCOPE_HUB"})
      unsetenv(name);
    set("HOME", "/home/me");
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(Environment, SaysWhereTheHuggingFaceCacheIs) {
  EXPECT_EQ(settings_of(Hub::huggingface).cache, "/home/me/.cache/huggingface/hub");
  set("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(settings_of(Hub::huggingface).cache, "/xdg/huggingface/hub");
  set("HF_HOME", "$HOME/hf");
  EXPECT_EQ(settings_of(Hub::huggingface).cache, "/home/me/hf/hub");
  set("HF_HUB_CACHE", "~/elsewhere/");
  EXPECT_EQ(settings_of(Hub::huggingface).cache.lexically_relative("/home/me/elsewhere"), ".");
  EXPECT_EQ(settings_of(Hub::huggingface).cache_key, "HF_HUB_CACHE");
}

TEST_F(Environment, RefusesAnEndpointWithAPasswordThatIsNoPartOfAnAddress) {
  for (const char* endpoint : {"https://me:x/q9@mirror.example", "me:12/q9@mirror.example", "https://me:x#q9@mirror.example"}) {
    set("HF_ENDPOINT", endpoint);
    try {
      settings_of(Hub::huggingface);
      ADD_FAILURE() << endpoint;
    } catch (const ConfigError& e) {
      EXPECT_NE(std::string(e.what()).find("HF_ENDPOINT"), std::string::npos);
      EXPECT_EQ(std::string(e.what()).find("q9"), std::string::npos) << e.what();
    }
  }
}

TEST_F(Environment, SaysWhereTheHubsAre) {
  EXPECT_EQ(settings_of(Hub::huggingface).endpoint, "https://huggingface.co");
  set("HF_ENDPOINT", "https://mirror.example/");
  EXPECT_EQ(settings_of(Hub::huggingface).endpoint, "https://mirror.example");
  set("MODELSCOPE_DOMAIN", "scope.example");
  EXPECT_EQ(settings_of(Hub::modelscope).endpoint, "https://scope.example");
  set("MODELSCOPE_CACHE", "/scope");
  EXPECT_EQ(settings_of(Hub::modelscope).cache, "/scope");
}

TEST_F(Environment, HasTokensAndSwitches) {
  EXPECT_EQ(settings_of(Hub::huggingface).token, "");
  set("HF_TOKEN", " hf_abc\n");
  EXPECT_EQ(settings_of(Hub::huggingface).token, "hf_abc");
  EXPECT_EQ(settings_of(Hub::huggingface).token_from, "HF_TOKEN");
  EXPECT_EQ(offline_by(), "");
  set("HF_HUB_OFFLINE", "0");
  EXPECT_EQ(offline_by(), "");
  set("TRANSFORMERS_OFFLINE", "Yes");
  EXPECT_EQ(offline_by(), "TRANSFORMERS_OFFLINE=Yes");
  EXPECT_EQ(default_hub("auto"), Hub::huggingface);
  set("USE_MODELSCOPE_HUB", "1");
  EXPECT_EQ(default_hub("auto"), Hub::modelscope);
  EXPECT_EQ(default_hub("huggingface"), Hub::huggingface);
}

TEST(Source, HasADefaultRevision) {
  EXPECT_EQ(revision_of({Hub::huggingface, Kind::model, "a/b", ""}), "main");
  EXPECT_EQ(revision_of({Hub::modelscope, Kind::model, "a/b", ""}), "master");
  EXPECT_EQ(revision_of({Hub::modelscope, Kind::model, "a/b", "main"}), "master");
  EXPECT_EQ(revision_of({Hub::huggingface, Kind::model, "a/b", "refs/pr/1"}), "refs/pr/1");
}

std::string refusal(const Source& source) {
  try {
    check(source);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "taken";
}

TEST(Source, IsRefusedWhereItCouldLeadOut) {
  check({Hub::huggingface, Kind::model, "Qwen/Qwen3-8B", "refs/pr/1"});
  for (const char* id : {"", "Qwen", "a/b/c", "../b", "a/..", "a/b..c", "a/.b", "a--b/c", "a/b c", "a/b%2e", "/a", "a/"})
    EXPECT_NE(refusal({Hub::huggingface, Kind::model, id, ""}).find("owner/name"), std::string::npos) << id;
  for (const char* revision : {"..", "a/../b", "/a", "a/", "-x", "a b", "a\nb", "a:b", ".", "./a", "a/./b"})
    EXPECT_NE(refusal({Hub::huggingface, Kind::model, "a/b", revision}).find("not a revision"), std::string::npos) << revision;
}

TEST(Source, ShowsNoToken) {
  EXPECT_EQ(redacted("bad token hf_abc: hf_abc", "hf_abc"), "bad token ***: ***");
  EXPECT_EQ(redacted("words", ""), "words");
}

}  // namespace
}  // namespace qft::hub
