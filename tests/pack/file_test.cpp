#include "qft/core/error.h"
#include "qft/io/hdf5.h"
#include "qft/pack/reader.h"

#include <fstream>

#include "fixture.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::pack {
namespace {

using test::build_pack;
using test::contains;
using test::error_of;
using test::make_attributes;
using test::make_item;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;

TEST(Pack, ItemsComeBackAsTheyWentIn) {
  const TempDir dir;
  for (const int sequences : {1, 2}) {
    const auto pack = build_pack(dir / "p.h5", 40, sequences);
    ASSERT_EQ(pack->num_items(), 40);
    EXPECT_EQ(pack->num_sequences(), 40 * sequences);
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < 40; ++i) {
      const encode::EncodedItem expected = make_item(i, sequences), item = pack->item(i);
      ASSERT_EQ(item.sequences.size(), expected.sequences.size());
      std::int64_t item_tokens = 0, labels = 0;
      for (std::size_t s = 0; s < item.sequences.size(); ++s) {
        EXPECT_EQ(item.sequences[s].ids, expected.sequences[s].ids);
        EXPECT_EQ(item.sequences[s].label_spans, expected.sequences[s].label_spans);
        item_tokens += static_cast<std::int64_t>(item.sequences[s].ids.size());
        labels += expected.sequences[s].num_labels();
      }
      EXPECT_EQ(item.category, expected.category);
      EXPECT_EQ(item.tags, expected.tags);
      EXPECT_EQ(item.dataset, expected.dataset);
      EXPECT_EQ(item.source_index, expected.source_index);
      EXPECT_EQ(pack->item_tokens()[static_cast<std::size_t>(i)], item_tokens);
      EXPECT_EQ(pack->item_labels()[static_cast<std::size_t>(i)], labels);
      tokens += item_tokens;
    }
    EXPECT_EQ(pack->num_tokens(), tokens);
    pack->verify();
    EXPECT_THROW(pack->item(40), Error);
    EXPECT_THROW(pack->item(-1), Error);
  }
}

TEST(Pack, CarriesItsContract) {
  const TempDir dir;
  const auto pack = build_pack(dir / "p.h5", 40);
  const PackAttributes& a = pack->attributes();
  EXPECT_EQ(a.tokenizer_hash, "tok");
  EXPECT_EQ(a.options, make_attributes().options);
  EXPECT_EQ(a.category_names, (std::vector<std::string>{"easy", "hard", "中"}));
  ASSERT_EQ(a.sources.size(), 2u);
  EXPECT_EQ(a.sources[0].items, 32);
  EXPECT_EQ(a.sources[1].items, 8);
  EXPECT_EQ(a.sources[0].records, 32 + 2 * 6);
  EXPECT_EQ(a.sources[0].dropped, 12);
  EXPECT_EQ(a.sources[0].truncated + a.sources[1].truncated, 7);
  EXPECT_EQ(pack->fingerprint(), make_attributes().fingerprint());
  ASSERT_EQ(a.sources[0].files.size(), 1u);
  EXPECT_EQ(a.sources[0].files[0].name, "first.json");
  EXPECT_EQ(a.sources[0].files[0].bytes, 12345);
  PackAttributes other = make_attributes();
  other.sources[0].files.clear();  // packs of earlier versions do not have them
  EXPECT_EQ(other.fingerprint(), pack->fingerprint());
  other.sources[1].hash = "h2";
  EXPECT_NE(other.fingerprint(), pack->fingerprint());
}

TEST(Pack, RefusesARunOfAnotherContractWithBothValues) {
  const TempDir dir;
  const auto pack = build_pack(dir / "p.h5", 10);
  const PackExpectation fits{"tok", "tpl", 6000, 2048};
  pack->check_against(fits);
  const auto refusal = [&](auto change) {
    PackExpectation e = fits;
    change(e);
    EXPECT_THROW(pack->check_against(e), ConfigError);
    return error_of([&] { pack->check_against(e); });
  };
  const std::string tokenizer = refusal([](auto& e) { e.tokenizer_hash = "tok2"; });
  EXPECT_TRUE(contains(tokenizer, "(hash tok)"));
  EXPECT_TRUE(contains(tokenizer, "(tok2)"));
  EXPECT_TRUE(contains(refusal([](auto& e) { e.template_hash = "x"; }), "template 'qwen' (hash tpl)"));
  EXPECT_TRUE(contains(refusal([](auto& e) { e.vocab_size = 4999; }), "5000 token ids, the model has 4999"));
  const std::string cutoff = refusal([](auto& e) { e.cutoff_len = 4096; });
  EXPECT_TRUE(contains(cutoff, "4096"));
  EXPECT_TRUE(contains(cutoff, "2048"));
}

TEST(Pack, AnyFlippedBitOfAnyDatasetIsFound) {
  const TempDir dir;
  build_pack(dir / "p.h5", 30, 2);
  const std::string whole = read_bytes(dir / "p.h5");
  const io::h5::File file = io::h5::File::open(dir / "p.h5");
  std::mt19937_64 random(3);
  for (const std::string& name : file.list()) {
    const io::h5::Dataset dataset = file.dataset(name);
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t byte = dataset.offset() + random() % dataset.bytes();
      std::string damaged = whole;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << random() % 8));
      write_bytes(dir / "damaged.h5", damaged);
      EXPECT_THROW(PackReader::open(dir / "damaged.h5")->verify(), Error) << name << " byte " << byte;
    }
  }
}

TEST(Pack, SeesEveryOneOfTenThousandRandomDamages) {
  const TempDir dir;
  build_pack(dir / "p.h5", 10);
  const std::string whole = read_bytes(dir / "p.h5");
  std::mt19937_64 random(4);
  for (int round = 0; round < 10000; ++round) {
    std::string damaged = whole;
    const std::size_t at = random() % whole.size();
    if (round % 5 == 0)
      damaged.resize(at);
    else
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    write_bytes(dir / "damaged.h5", damaged);
    EXPECT_THROW(PackReader::open(dir / "damaged.h5")->verify(), Error)
        << "byte " << at << " of " << whole.size() << ", round " << round;
  }
}

TEST(Pack, RefusesFilesThatAreNoWholePack) {
  const TempDir dir;
  build_pack(dir / "p.h5", 10);
  const std::string whole = read_bytes(dir / "p.h5");
  EXPECT_THROW(PackReader::open(dir / "none.h5"), Error);
  EXPECT_THROW(PackReader::open(dir.path()), Error);
  for (const std::size_t size : {std::size_t{0}, std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
    write_bytes(dir / "short.h5", whole.substr(0, size));
    EXPECT_TRUE(contains(error_of([&] { PackReader::open(dir / "short.h5"); }), "short.h5"));
  }
  io::h5::File::create(dir / "other.h5").close();
  EXPECT_TRUE(contains(error_of([&] { PackReader::open(dir / "other.h5"); }), "not a pack"));
  io::h5::File newer = io::h5::File::create(dir / "newer.h5");
  newer.set_string("format", kPackFormatName);
  newer.set_int("format_version", 9);
  newer.close();
  EXPECT_TRUE(contains(error_of([&] { PackReader::open(dir / "newer.h5"); }), "pack format 9, this program reads 1"));
}

TEST(PackSink, RefusesItemsThatBreakTheRules) {
  const TempDir dir;
  const auto comm = comm::make_self_communicator();
  const auto error_with = [&](auto change) {
    return error_of([&] {
      PackBuilder(*comm, dir / "p.h5", make_attributes()).build(1, [&](std::size_t, PackSink& sink) {
        sink.add(make_item(1));
        encode::EncodedItem item = make_item(2);
        change(item);
        sink.add(std::move(item));
      });
    });
  };
  EXPECT_TRUE(contains(error_with([](auto& i) { i.sequences.clear(); }), "record 20 of dataset 0"));
  EXPECT_TRUE(contains(error_with([](auto& i) { i.sequences[0].ids.clear(); }), "empty sequence"));
  EXPECT_TRUE(contains(error_with([](auto& i) { i.sequences[0].ids[1] = 5000; }), "token id 5000"));
  EXPECT_TRUE(contains(error_with([](auto& i) { i.sequences[0].ids[1] = -1; }), "token id -1"));
  EXPECT_TRUE(contains(error_with([](auto& i) { i.sequences[0].label_spans = {{2, 2}}; }), "label span [2, 2)"));
  EXPECT_TRUE(contains(error_with([](auto& i) { i.sequences[0].label_spans = {{0, 99}}; }), "[0, 99)"));
  EXPECT_TRUE(contains(error_with([](auto& i) { i.sequences.push_back(i.sequences[0]); }), "2 sequences among"));
  EXPECT_TRUE(contains(error_with([](auto& i) { i.dataset = 2; }), "dataset 2 of 2"));
  EXPECT_TRUE(contains(error_with([](auto& i) { i.category = "\xff"; }), "not UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(dir / "p.h5"));
}

}  // namespace
}  // namespace qft::pack
