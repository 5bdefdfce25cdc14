// Packs with label weights: version 2, and only these.
#include "qft/core/error.h"
#include "qft/io/hdf5.h"
#include "qft/pack/merge.h"
#include "qft/pack/print.h"
#include "qft/pack/reader.h"

#include <random>
#include <sstream>

#include "fixture.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::pack {
namespace {

using test::error_of;
using test::make_attributes;
using test::make_item;
using test::read_bytes;
using test::TempDir;
using test::with_weights;
using test::write_bytes;

constexpr std::int64_t kItems = 24, kChunk = 8;

/// Returns an item with weights from number `first` on, so that there are whole chunks without and with weights.
encode::EncodedItem item_of(std::int64_t number, std::int64_t first) {
  return number < first ? make_item(number) : with_weights(make_item(number));
}

std::shared_ptr<const PackReader> build(const std::filesystem::path& path, std::int64_t first, std::int64_t items = kItems) {
  const auto comm = comm::make_self_communicator();
  PackBuilder(*comm, path, make_attributes())
      .build(static_cast<std::size_t>((items + kChunk - 1) / kChunk), [&](std::size_t chunk, PackSink& sink) {
        const std::int64_t begin = static_cast<std::int64_t>(chunk) * kChunk;
        for (std::int64_t i = begin; i < std::min(items, begin + kChunk); ++i) {
          encode::EncodedItem item = item_of(i, first);
          sink.count(item.dataset, 1, 0, 0);
          sink.add(std::move(item));
        }
      });
  return PackReader::open(path);
}

std::vector<float> weights_of(const encode::EncodedItem& item) {
  return item.sequences.front().span_weights;
}

/// Returns the weights that reading must give: none if all are 1.
std::vector<float> expected(std::int64_t number, std::int64_t first) {
  std::vector<float> weights = weights_of(item_of(number, first));
  if (std::ranges::all_of(weights, [](float weight) { return weight == 1; })) weights.clear();
  return weights;
}

std::int64_t version_of(const std::filesystem::path& path) {
  return io::h5::File::open(path).get_int("format_version");
}

TEST(PackWeights, ComeBackAsTheyWentIn) {
  const TempDir dir;
  for (const std::int64_t first : {INT64_C(0), 2 * kChunk}) {
    const auto pack = build(dir / "w.h5", first);
    EXPECT_EQ(version_of(dir / "w.h5"), 2);
    EXPECT_TRUE(pack->has_weights());
    pack->verify();
    FlatItem flat;
    for (std::int64_t i = 0; i < kItems; ++i) {
      EXPECT_EQ(weights_of(pack->item(i)), expected(i, first)) << i;
      pack->read(i, flat);
      EXPECT_EQ(flat.span_weights.size(), flat.spans.size());
    }
  }
}

TEST(PackWeights, OfOneMakeThePackWithoutThem) {
  const TempDir dir;
  const auto plain = build(dir / "p.h5", kItems);
  EXPECT_EQ(version_of(dir / "p.h5"), 1);
  EXPECT_FALSE(plain->has_weights() || io::h5::File::open(dir / "p.h5").contains("label_span_weights"));
}

TEST(PackWeights, DamagesAreFound) {
  const TempDir dir;
  build(dir / "w.h5", kChunk);
  const std::string whole = read_bytes(dir / "w.h5");
  const io::h5::Dataset weights = io::h5::File::open(dir / "w.h5").dataset("label_span_weights");
  std::mt19937_64 random(6);
  for (int round = 0; round < 400; ++round) {
    std::string damaged = whole;
    const std::uint64_t at = round % 2 == 0 ? weights.offset() + random() % weights.bytes() : random() % whole.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    write_bytes(dir / "damaged.h5", damaged);
    EXPECT_THROW(PackReader::open(dir / "damaged.h5")->verify(), Error) << "byte " << at << ", round " << round;
  }
}

TEST(PackWeights, AreMergedWithPacksThatHaveNone) {
  const TempDir dir;
  build(dir / "a.h5", kItems);
  build(dir / "b.h5", 0, kChunk);
  const auto comm = comm::make_self_communicator();
  merge_packs(*comm, {dir / "a.h5", dir / "b.h5"}, dir / "m.h5");
  const auto merged = PackReader::open(dir / "m.h5");
  merged->verify();
  EXPECT_TRUE(merged->has_weights());
  for (std::int64_t i = 0; i < kItems; ++i) EXPECT_TRUE(weights_of(merged->item(i)).empty());
  for (std::int64_t i = 0; i < kChunk; ++i) EXPECT_EQ(weights_of(merged->item(kItems + i)), expected(i, 0));
}

TEST(PackWeights, ArePrinted) {
  const TempDir dir;
  const auto pack = build(dir / "w.h5", 0);
  const auto bounds = summarize(*pack)["label_weights_min_max"];
  EXPECT_EQ(bounds, nlohmann::ordered_json({0.5, 1.5}));
  EXPECT_NE(format_summary(*pack).find("label weights from 0.5 to 1.5"), std::string::npos);
  std::ostringstream out;
  write_json_lines(*pack, 0, kItems, out);
  std::istringstream lines(out.str());
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line); ++number)
    EXPECT_EQ(nlohmann::json::parse(line).value("span_weights", std::vector<float>()), expected(number, 0));
  EXPECT_EQ(number, kItems);
}

TEST(PackWeights, ThatAreNoneAreRefused) {
  const TempDir dir;
  const auto comm = comm::make_self_communicator();
  for (const float weight : {0.0F, -1.0F, std::numeric_limits<float>::infinity()}) {
    const std::string error = error_of([&] {
      PackBuilder(*comm, dir / "p.h5", make_attributes()).build(1, [&](std::size_t, PackSink& sink) {
        encode::EncodedItem item = with_weights(make_item(0));
        item.sequences[0].span_weights[0] = weight;
        sink.add(std::move(item));
      });
    });
    EXPECT_NE(error.find("label weight"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace qft::pack
