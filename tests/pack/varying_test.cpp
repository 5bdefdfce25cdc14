// Packs whose items have different numbers of sequences.
#include "qft/core/error.h"
#include "qft/io/hdf5.h"
#include "qft/pack/merge.h"
#include "qft/pack/print.h"
#include "qft/pack/reader.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "fixture.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::pack {
namespace {

using test::contains;
using test::error_of;
using test::TempDir;

void expect_lists(const PackReader& pack, std::int64_t first, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const encode::EncodedItem got = pack.item(first + i), want = test::make_list(i);
    ASSERT_EQ(got.sequences.size(), want.sequences.size()) << i;
    for (std::size_t s = 0; s < want.sequences.size(); ++s) EXPECT_EQ(got.sequences[s].ids, want.sequences[s].ids);
    EXPECT_EQ(got.tags, want.tags);
  }
}

/// Stages without token labels learn no tokens.
TEST(VaryingPack, ASummaryCountsLearnedTokensOfStagesThatLearnTokensOnly) {
  const TempDir dir;
  const auto comm = comm::make_self_communicator();
  const auto summary_of = [&](const char* stage) {
    PackAttributes attributes = test::make_attributes();
    attributes.stage = stage;
    attributes.varying_sequences = true;
    const auto path = dir / (std::string(stage) + ".h5");
    PackBuilder(*comm, path, attributes).build(1, [&](std::size_t, PackSink& sink) {
      sink.count(0, 1, 0, 0);
      sink.add(test::make_documents(0, 2, 1));
    });
    return format_summary(*PackReader::open(path));
  };
  EXPECT_FALSE(contains(summary_of("embedding"), "to learn"));
  EXPECT_TRUE(contains(summary_of("sft"), "to learn"));
}

TEST(VaryingPack, HoldsOneToNineSequencesAnItem) {
  const TempDir dir;
  const auto pack = test::build_lists(dir / "p.h5", 20);
  EXPECT_EQ(pack->attributes().sequences_per_item, 0);
  EXPECT_EQ(pack->attributes().max_item_sequences, 9);
  expect_lists(*pack, 0, 20);
  const std::vector<std::int64_t> offsets = pack->item_offsets();
  ASSERT_EQ(offsets.size(), 21U);
  EXPECT_EQ(offsets.back(), pack->num_sequences());
  for (std::size_t i = 0; i < 20; ++i)
    EXPECT_EQ(offsets[i + 1] - offsets[i], std::ssize(test::make_list(static_cast<std::int64_t>(i)).sequences));
  pack->verify();
  EXPECT_EQ(io::h5::File::open(dir / "p.h5").get_int("format_version"), kVaryingPackVersion);
}

TEST(VaryingPack, LeavesOtherPacksAsTheyWere) {
  const TempDir dir;
  test::build_pack(dir / "p.h5", 20, 2);
  const io::h5::File file = io::h5::File::open(dir / "p.h5");
  EXPECT_EQ(file.get_int("format_version"), kPackFormatVersion);
  EXPECT_EQ(file.get_int("sequences_per_item"), 2);
  EXPECT_FALSE(file.has_attribute("max_item_sequences"));
}

TEST(VaryingPack, IsMergedAndPrinted) {
  const TempDir dir;
  const auto pack = test::build_lists(dir / "a.h5", 11);
  test::build_lists(dir / "b.h5", 5);
  const auto comm = comm::make_self_communicator();
  merge_packs(*comm, {dir / "a.h5", dir / "b.h5"}, dir / "m.h5");
  const auto merged = PackReader::open(dir / "m.h5");
  EXPECT_EQ(merged->num_items(), 16);
  EXPECT_EQ(merged->attributes().max_item_sequences, 9);
  expect_lists(*merged, 0, 11);
  expect_lists(*merged, 11, 5);
  merged->verify();

  std::ostringstream out;
  write_json_lines(*pack, 4, 1, out);
  const auto line = nlohmann::json::parse(out.str());
  const encode::EncodedItem item = test::make_list(4);
  EXPECT_EQ(line["positives"], 1);
  ASSERT_EQ(line["sequences"].size(), item.sequences.size());
  EXPECT_EQ(line["sequences"][2]["ids"], item.sequences[2].ids);
}

/// Overwrites an entry of an array of 64-bit numbers.
void overwrite(const std::filesystem::path& path, const std::string& array, std::int64_t index, std::int64_t value) {
  const auto at = static_cast<std::int64_t>(io::h5::File::open(path).dataset(array).offset()) + index * 8;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at);
  file.write(reinterpret_cast<const char*>(&value), sizeof value);
}

TEST(VaryingPack, RefusesItemsAndSequencesOfNothing) {
  const TempDir dir;
  const std::int64_t fourth = test::build_lists(dir / "p.h5", 20)->item_offsets()[3];
  const auto copy = [&](const char* name) {
    std::filesystem::copy_file(dir / "p.h5", dir / name);
    return dir / name;
  };
  const auto items = copy("items.h5");
  overwrite(items, "item_offsets", 4, fourth);
  const auto damaged = PackReader::open(items);
  EXPECT_THROW(damaged->item_offsets(), ConfigError);
  for (const std::string& error :
       {error_of([&] { damaged->item_offsets(); }), error_of([&] { static_cast<void>(damaged->item(3)); })})
    EXPECT_TRUE(contains(error, "items.h5', item 3: ") && contains(error, "pack it again")) << error;

  const auto tokens = copy("tokens.h5");
  overwrite(tokens, "sequence_offsets", 1, 0);
  const std::string error = error_of([&] { PackReader::open(tokens)->sequence_tokens(); });
  EXPECT_TRUE(contains(error, "tokens.h5', sequence 0: ") && contains(error, "pack it again")) << error;
}

TEST(VaryingPack, NeedsItsTag) {
  EXPECT_EQ(encode::positives_of(config::SampleKind::ranking, 3, {{"positives", "3"}}), 3);
  EXPECT_EQ(encode::positives_of(config::SampleKind::texts, 3, {{"a", "b"}, {"positives", "2"}}), 2);
  EXPECT_TRUE(contains(error_of([] { encode::positives_of(config::SampleKind::texts, 3, {{"positives", "3"}}); }), "'3'"));
  EXPECT_TRUE(contains(error_of([] { encode::positives_of(config::SampleKind::ranking, 3, {}); }), "no tag 'positives'"));
  EXPECT_TRUE(contains(error_of([] { encode::positives_of(config::SampleKind::ranking, 3, {{"positives", "1x"}}); }), "'1x'"));
}

}  // namespace
}  // namespace qft::pack
