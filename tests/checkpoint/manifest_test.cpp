#include "qft/checkpoint/manifest.h"

#include "qft/core/hash.h"

#include <functional>
#include <limits>
#include <string>

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::checkpoint {

using test::contains;
using test::error_of;

const Box kWhole = Box::whole({4, 5});

Manifest sample() {
  Manifest m;
  m.step = 100;
  m.world_size = 2;
  m.qft_version = "0.1.0";
  m.state = {{"epoch", 1.5}, {"big", 18446744073709551615u}, {"text", "数据"}};
  m.files = {{"a.safetensors", 100, "00"}, {"b.safetensors", 200, "11"}};
  m.tensors = {
      {"t", DType::bf16, {4, 5}, {{kWhole, {{0, 7, "a.safetensors", "t[0:7]"}, {7, 20, "b.safetensors", "t[7:20]"}}}}},
      {"u", DType::f32, {}, {{{}, {{0, 1, "a.safetensors", "u"}}}}},
      {"v",
       DType::f32,
       {4, 6},
       {{{{0, 0}, {4, 2}}, {{0, 8, "a.safetensors", "v[0:4, 0:2]"}}},
        {{{0, 2}, {4, 4}}, {{0, 5, "a.safetensors", "v[0:4, 2:6][0:5]"}, {5, 16, "b.safetensors", "v[0:4, 2:6][5:16]"}}}}}};
  return m;
}

TEST(Manifest, RoundTrips) {
  const std::string text = sample().to_text();
  const Manifest m = Manifest::parse(text);
  EXPECT_EQ(m.step, 100);
  EXPECT_EQ(m.state, sample().state);
  EXPECT_EQ(m.find("t")->boxes[0].ranges[1].entry, "t[7:20]");
  EXPECT_EQ(m.find("v")->boxes[1].box, (Box{{0, 2}, {4, 4}}));
  EXPECT_EQ(m.find("t")->boxes[0].box, kWhole);
  EXPECT_EQ(m.find("w"), nullptr);
  EXPECT_EQ(m.find_file("b.safetensors")->bytes, 200u);
  EXPECT_EQ(m.to_text(), text);
}

TEST(Manifest, StatesThatJsonCannotHoldDoNotBreakTheChecksum) {
  Manifest m = sample();
  m.state["loss"] = std::numeric_limits<double>::quiet_NaN();
  m.state["tiny"] = 5e-324;
  EXPECT_TRUE(Manifest::parse(m.to_text()).state["loss"].is_null());
  m.state["bad"] = "\xc3\x28";
  EXPECT_TRUE(contains(error_of([&] { m.to_text(); }), "cannot be written as JSON"));
}

TEST(Manifest, EveryFlippedBitIsSeen) {
  Manifest manifest = sample();
  manifest.state["learning_rate"] = 1e-05;  // "1E-05" has the same value
  const std::string good = manifest.to_text();
  for (std::size_t i = 0; i < good.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      EXPECT_THROW(Manifest::parse(bad), Error) << "byte " << i << " bit " << bit;
    }
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_THROW(Manifest::parse(good.substr(0, n)), Error);
}

TEST(Manifest, RefusesNestingAndOtherVersions) {
  EXPECT_TRUE(contains(error_of([] { Manifest::parse(std::string(200000, '[')); }), "nested"));
  EXPECT_TRUE(contains(error_of([] { Manifest::parse("[]"); }), "not a checkpoint's manifest"));
  EXPECT_TRUE(contains(error_of([] { Manifest::parse(R"({"format":"qft checkpoint","version":3})"); }),
                       "version 3, this qft reads versions 1 to 2"));
}

struct Broken {
  const char* what;
  std::function<void(Manifest&)> change;
  const char* message;
};

TEST(Manifest, BrokenInvariantsNameTensorAndElements) {
  const Broken cases[] = {
      {"gap", [](Manifest& m) { m.tensors[0].boxes[0].ranges[1].begin = 9; }, "elements [7, 9) of tensor 't' are in no file"},
      {"overlap", [](Manifest& m) { m.tensors[0].boxes[0].ranges[1].begin = 5; },
       "elements [5, 7) of tensor 't' are in both 'a.safetensors' and 'b.safetensors'"},
      {"short", [](Manifest& m) { m.tensors[0].boxes[0].ranges.pop_back(); }, "elements [7, 20) of tensor 't' are in no file"},
      {"long", [](Manifest& m) { m.tensors[0].boxes[0].ranges[1].end = 21; }, "has 20 elements, but"},
      {"twice", [](Manifest& m) { m.tensors[1].name = "t"; }, "tensor 't' is listed twice"},
      {"file twice", [](Manifest& m) { m.files[1].name = "a.safetensors"; }, "file 'a.safetensors' is listed twice"},
      {"outside", [](Manifest& m) { m.files[0].name = "../a"; }, "lists a file called '../a'"},
      {"unlisted", [](Manifest& m) { m.tensors[0].boxes[0].ranges[0].file = "c"; }, "lies in 'c', which is not listed"},
      {"shape", [](Manifest& m) { m.tensors[0].shape = {1L << 62, 4}; }, "impossible shape"},
      {"negative", [](Manifest& m) { m.tensors[0].shape = {-20}; }, "impossible shape"},
      {"box outside", [](Manifest& m) { m.tensors[2].boxes[0].box.extent[1] = 7; },
       "tensor 'v' has shape [4, 6], the box [4, 7] from [0, 0] on is not inside it"},
      {"box beyond 64 bits", [](Manifest& m) { m.tensors[2].boxes[0].box = {{1, 0}, {INT64_MAX, 2}}; }, "is not inside it"},
      {"box of other dimensions", [](Manifest& m) { m.tensors[2].boxes[0].box = {{0}, {4}}; },
       "the box [4] from [0] on is not inside it"},
      {"boxes overlap", [](Manifest& m) { m.tensors[2].boxes[0] = {{{0, 0}, {4, 3}}, {{0, 12, "a.safetensors", "v"}}}; },
       "elements of tensor 'v' are in both [4, 3] from [0, 0] on and [4, 4] from [0, 2] on"},
      {"box missing", [](Manifest& m) { m.tensors[2].boxes.erase(m.tensors[2].boxes.begin()); },
       "tensor 'v' has 24 elements, but its boxes hold 16"},
      {"too many boxes", [](Manifest& m) { m.tensors[2].boxes.resize(1025, m.tensors[2].boxes[0]); },
       "tensor 'v' lies in 1025 boxes, more than 1024"},
      {"gap in a box", [](Manifest& m) { m.tensors[2].boxes[1].ranges[1].begin = 6; },
       "elements [5, 6) of the box [4, 4] from [0, 2] on of tensor 'v' are in no file"},
      {"no range", [](Manifest& m) { m.tensors[2].boxes.clear(); }, "elements [0, 24) of tensor 'v' are in no file"},
  };
  for (const Broken& c : cases) {
    Manifest m = sample();
    c.change(m);
    EXPECT_TRUE(contains(error_of([&] { Manifest::parse(m.to_text()); }), c.message)) << c.what;
  }
}

TEST(Manifest, ATensorMayLieInAsManyBoxesAsAllowed) {
  Manifest m = sample();
  m.tensors[2] = {"v", DType::f32, {kMaxBoxes, 6}, {}};
  for (std::int64_t row = 0; row < std::int64_t{kMaxBoxes}; ++row)
    m.tensors[2].add({{row, 0}, {1, 6}}, {0, 6, "a.safetensors", "v" + std::to_string(row)});
  EXPECT_EQ(Manifest::parse(m.to_text()).find("v")->boxes.size(), kMaxBoxes);
}

/// Returns a manifest's text after a change of its JSON, with the matching checksum.
std::string changed(const std::function<void(nlohmann::json&)>& change) {
  auto document = nlohmann::json::parse(sample().to_text());
  document.erase("checksum");
  change(document);
  document["checksum"] = hash_hex(document.dump());
  return document.dump(1) + "\n";
}

TEST(Manifest, OfVersion1HoldsWholeTensors) {
  const auto parse = [](const std::function<void(nlohmann::json&)>& change) { return Manifest::parse(changed(change)); };
  const Manifest old = parse([](nlohmann::json& j) {
    j["version"] = 1;
    j["tensors"].erase(2);
  });
  EXPECT_EQ(old.tensors.size(), 2U);
  EXPECT_EQ(old.find("t")->boxes.at(0).box, kWhole);
  EXPECT_TRUE(contains(error_of([&] { parse([](nlohmann::json& j) { j["version"] = 1; }); }),
                       "tensor 'v' has boxes in a manifest of version 1"));
  EXPECT_TRUE(contains(error_of([&] { parse([](nlohmann::json& j) { j["tensors"][2]["ranges"] = nlohmann::json::array(); }); }),
                       "and ranges too"));
  EXPECT_TRUE(contains(error_of([&] { parse([](nlohmann::json& j) { j["tensors"][2]["boxes"][0]["start"] = 0; }); }),
                       "\"start\" of a box is 0"));
}

}  // namespace qft::checkpoint
