#include "qft/core/hash.h"

#include "qft/core/dtype.h"
#include "qft/core/error.h"
#include "qft/core/log.h"

#include <string>

#include <gtest/gtest.h>

namespace qft {

// RFC 3720, appendix B.4.
TEST(Crc32c, MatchesTheRfcVectors) {
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff').data(), 32), 0x62A8AB43u);
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283u);
}

TEST(Crc32c, ContinuesFromASeed) {
  const std::string text = "the quick brown fox jumps over the lazy dog";
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32c(text.data() + cut, text.size() - cut, crc32c(text.data(), cut)), crc32c(text.data(), text.size()));
}

TEST(Hasher, IsIndependentOfHowTheBytesArrive) {
  Hasher hasher;
  hasher.update("ab");
  hasher.update("c");
  EXPECT_EQ(hasher.hex(), hash_hex("abc"));
  EXPECT_NE(hash_hex("abc"), hash_hex("abd"));
  EXPECT_EQ(hash_hex("").size(), 32u);
}

TEST(HashFile, NamesAMissingFile) {
  try {
    hash_file("/no/such/file");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("/no/such/file"), std::string::npos);
  }
}

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < 10; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_safetensors(safetensors_name(dtype)), dtype);
    EXPECT_GE(size_of(dtype), 1u);
  }
  EXPECT_THROW(dtype_from_safetensors("F8_E4M3"), Error);
}

TEST(Log, OtherRanksPrintWarningsOnly) {
  log::init({.level = log::Severity::info, .rank = 1, .world_size = 2});
  EXPECT_FALSE(log::enabled(log::Severity::info));
  EXPECT_TRUE(log::enabled(log::Severity::warning));
  log::init({.level = log::Severity::info, .rank = 1, .world_size = 2, .all_ranks = true});
  EXPECT_TRUE(log::enabled(log::Severity::info));
  log::init({});
  EXPECT_THROW(log::parse_severity("loud"), ConfigError);
}

}  // namespace qft
