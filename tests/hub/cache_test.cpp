#include "hub/cache.h"

#include "qft/core/error.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "hub/store.h"
#include <gtest/gtest.h>

namespace qft::hub {
namespace {

namespace fs = std::filesystem;
const std::string kCommit(40, 'a');

/// A Hugging Face cache with one snapshot; downloads are forbidden.
class Cache : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "qft-cache-XXXXXX").string();
    root_ = mkdtemp(name.data());
    setenv("HF_HUB_CACHE", root_.c_str(), 1);
    setenv("HF_HUB_OFFLINE", "1", 1);
  }
  void TearDown() override {
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_HUB_OFFLINE");
    fs::remove_all(root_);
  }
  fs::path home(const Source& source) const { return root_ / huggingface_folder(source); }
  fs::path snapshot(const Source& source) const { return home(source) / "snapshots" / kCommit; }
  void write(const Source& source, const std::string& file, const std::string& text = "{}") const {
    fs::create_directories(home(source) / "refs");
    std::ofstream(home(source) / "refs/main") << kCommit;
    fs::create_directories((snapshot(source) / file).parent_path());
    std::ofstream(snapshot(source) / file) << text;
  }

  fs::path root_;
  Source data_{Hub::huggingface, Kind::dataset, "Acme/data", ""};
  Source model_{Hub::huggingface, Kind::model, "Acme/tiny", ""};
};

TEST_F(Cache, KnowsThatAPartOfADatasetIsAPart) {
  write(data_, "en/a.jsonl");
  const FileSelection wanted{.content = Content::dataset};
  EXPECT_FALSE(look_in_cache(data_, wanted).listed);
  keep_listing(home(data_), kCommit, {kCommit, {{"en/a.jsonl", 2, {}, {}}, {"zh/b.jsonl", 2, {}, {}}}});
  const Cached cached = look_in_cache(data_, wanted);
  EXPECT_TRUE(cached.listed);
  EXPECT_EQ(cached.missing, "zh/b.jsonl");
  EXPECT_FALSE(find_cached(data_, wanted));
  EXPECT_THROW(locate(data_, wanted), Error);
  write(data_, "zh/b.jsonl");
  EXPECT_EQ(locate(data_, wanted), snapshot(data_));
  write(data_, "zh/b.jsonl", "cut off");
  EXPECT_FALSE(find_cached(data_, wanted));
}

TEST_F(Cache, HasNoFolderOfADatasetThatIsNotThere) {
  write(data_, "en/a.jsonl");
  EXPECT_EQ(look_in_cache(data_, {.content = Content::dataset, .folders = {"en", "zh"}}).missing, "zh");
  EXPECT_EQ(look_in_cache(data_, {.content = Content::dataset, .folders = {"en"}}).missing, "");
}

TEST_F(Cache, DoesWithoutSmallFilesWhereTheHubCannotBeAsked) {
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"}) write(model_, file);
  keep_listing(home(model_), kCommit,
               {kCommit,
                {{"LICENSE.txt", 2, {}, {}},
                 {"config.json", 2, {}, {}},
                 {"model.safetensors", 2, {}, {}},
                 {"tokenizer.json", 2, {}, {}}}});
  EXPECT_EQ(look_in_cache(model_, {}).missing, "LICENSE.txt");
  EXPECT_EQ(locate(model_, {}), snapshot(model_));
  EXPECT_EQ(find_cached(model_, {}), snapshot(model_)) << "as on other nodes, and for qft check";
  unsetenv("HF_HUB_OFFLINE");
  EXPECT_FALSE(find_cached(model_, {}));
  setenv("HF_HUB_OFFLINE", "1", 1);
  fs::remove(snapshot(model_) / "model.safetensors");
  EXPECT_THROW(locate(model_, {}), Error);
}

}  // namespace
}  // namespace qft::hub
