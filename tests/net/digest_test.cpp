#include "qft/net/digest.h"

#include <gtest/gtest.h>

namespace qft::net {
namespace {

// FIPS 180-4's example, and git's hash of an empty blob.
TEST(Digest, IsTheStandards) {
  Digest sha256(Digest::Kind::sha256);
  sha256.update("a");
  sha256.update("bc");
  EXPECT_EQ(sha256.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest sha1(Digest::Kind::sha1);
  sha1.update(std::string_view("blob 0\0", 7));
  EXPECT_EQ(sha1.hex(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
}

}  // namespace
}  // namespace qft::net
