// Builds that are killed, or meet a full disk, leave no half pack and continue from their finished chunks.
#include "qft/core/error.h"
#include "qft/pack/builder.h"

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::pack {
namespace {

using test::build_pack;
using test::contains;
using test::Encoder;
using test::error_of;
using test::make_attributes;
using test::read_bytes;
using test::TempDir;

PackSummary build(const std::filesystem::path& path, const PackBuilder::EncodeChunk& encode, std::size_t chunks,
                  const PackAttributes& attributes = make_attributes()) {
  const auto comm = comm::make_self_communicator();
  return PackBuilder(*comm, path, attributes).build(chunks, encode);
}

/// Runs `body` in a child process; returns its wait status.
int in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(PackRestart, SkippedRecordsOfPartsMadeBeforeAKillAreReported) {
  const TempDir dir;
  const Encoder encoder{40};
  const auto skipping = [&](std::size_t chunk, PackSink& sink) {
    encoder(chunk, sink);
    if (chunk % 2 == 0) sink.drop(0, encode::DropReason::unreadable, fmt::format("d.jsonl:{}: \xff", chunk));
  };
  in_child([&] {
    build(
        dir / "p.h5",
        [&](std::size_t chunk, PackSink& sink) {
          skipping(chunk, sink);
          if (chunk == 3) ::kill(::getpid(), SIGKILL);
        },
        encoder.chunks());
  });
  const PackSummary summary = build(dir / "p.h5", skipping, encoder.chunks());
  EXPECT_EQ(summary.chunks_reused, 3U);
  EXPECT_EQ(summary.skipped,
            (std::vector<std::string>{"d.jsonl:0: \xEF\xBF\xBD", "d.jsonl:2: \xEF\xBF\xBD", "d.jsonl:4: \xEF\xBF\xBD"}));
}

TEST(PackRestart, PartsThatAKillAfterTheCommitLeftAreRemoved) {
  const TempDir dir;
  build_pack(dir / "p.h5", 40);
  std::filesystem::create_directories(dir / "tmp-p.h5.parts");
  test::write_bytes(dir / "tmp-p.h5.parts/part-000000", "left");
  const auto comm = comm::make_self_communicator();
  EXPECT_TRUE(PackBuilder(*comm, dir / "p.h5", make_attributes()).find_current().has_value());
  EXPECT_FALSE(std::filesystem::exists(dir / "tmp-p.h5.parts"));
}

TEST(PackRestart, ABuildKilledAtAnyChunkGoesOnAndGivesTheSameBytes) {
  const TempDir dir;
  const Encoder encoder{100};
  build_pack(dir / "whole.h5", 100);
  const std::string expected = read_bytes(dir / "whole.h5");
  for (std::size_t kill_at = 0; kill_at < encoder.chunks(); kill_at += 2) {
    const auto path = dir / ("killed-" + std::to_string(kill_at) + ".h5");
    const int status = in_child([&] {
      build(
          path,
          [&](std::size_t chunk, PackSink& sink) {
            encoder(chunk, sink);
            if (chunk == kill_at) ::kill(::getpid(), SIGKILL);
          },
          encoder.chunks());
    });
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_FALSE(std::filesystem::exists(path));
    std::size_t encoded = 0;
    const PackSummary summary = build(
        path,
        [&](std::size_t chunk, PackSink& sink) {
          encoder(chunk, sink);
          ++encoded;
        },
        encoder.chunks());
    EXPECT_EQ(summary.chunks_reused, kill_at);
    EXPECT_EQ(encoded, encoder.chunks() - kill_at);
    EXPECT_EQ(read_bytes(path), expected);
  }
  std::size_t left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) left += entry.is_directory();
  EXPECT_EQ(left, 0u) << "parts were not removed";
}

TEST(PackRestart, ABuildKilledAtAnyMomentLeavesNoHalfPack) {
  const TempDir dir;
  const Encoder encoder{3000, 1, 300};
  build(dir / "whole.h5", encoder, encoder.chunks());
  const std::string expected = read_bytes(dir / "whole.h5");
  for (int delay_us = 0; delay_us < 120'000; delay_us = delay_us * 3 / 2 + 2000) {
    const pid_t child = ::fork();
    if (child == 0) {
      build(dir / "p.h5", encoder, encoder.chunks());
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(delay_us));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(!std::filesystem::exists(dir / "p.h5") || read_bytes(dir / "p.h5") == expected) << delay_us;
    build(dir / "p.h5", encoder, encoder.chunks());
    EXPECT_TRUE(read_bytes(dir / "p.h5") == expected) << delay_us;
    std::filesystem::remove(dir / "p.h5");
  }
}

TEST(PackRestart, PartsOfOtherInputsOrDamagedOnesAreMadeAgain) {
  const TempDir dir;
  const Encoder encoder{60};
  const auto interrupted = [&](const PackAttributes& attributes) {
    EXPECT_EQ(error_of([&] {
                build(
                    dir / "p.h5",
                    [&](std::size_t chunk, PackSink& sink) {
                      require(chunk < 6, "the encoder gave up");
                      encoder(chunk, sink);
                    },
                    encoder.chunks(), attributes);
              }),
              "the encoder gave up");
  };
  PackAttributes other = make_attributes();
  other.options["mask_history"] = false;
  interrupted(other);
  EXPECT_EQ(build(dir / "p.h5", encoder, encoder.chunks()).chunks_reused, 0u);
  const std::string expected = read_bytes(dir / "p.h5");

  interrupted(make_attributes());
  EXPECT_EQ(read_bytes(dir / "p.h5"), expected) << "a failed build touched the pack that was there";
  const auto part = dir / "tmp-p.h5.parts/part-000002";
  std::string bytes = read_bytes(part);
  ASSERT_FALSE(bytes.empty());
  bytes[bytes.size() / 2] ^= 4;
  test::write_bytes(part, bytes);
  EXPECT_EQ(build(dir / "p.h5", encoder, encoder.chunks()).chunks_reused, 5u);
  EXPECT_EQ(read_bytes(dir / "p.h5"), expected);
}

TEST(PackRestart, AFullDiskNamesTheFileAndLeavesNoHalfPack) {
  const TempDir dir;
  const Encoder encoder{2000, 1, 100};
  const std::string error = test::error_with_file_limit(100'000, [&] { build(dir / "p.h5", encoder, encoder.chunks()); });
  EXPECT_TRUE(contains(error, (dir / "tmp-p.h5.parts/pack.h5").string()));
  EXPECT_FALSE(std::filesystem::exists(dir / "p.h5"));
  EXPECT_FALSE(std::filesystem::exists(dir / "tmp-p.h5.parts/pack.h5"));
  EXPECT_EQ(build(dir / "p.h5", encoder, encoder.chunks()).chunks_reused, encoder.chunks());
}

TEST(PackRestart, AFullDiskWhileEncodingNamesThePart) {
  const TempDir dir;
  const Encoder encoder{50};
  const std::string error = test::error_with_file_limit(1000, [&] { build(dir / "p.h5", encoder, encoder.chunks()); });
  EXPECT_TRUE(contains(error, (dir / "tmp-p.h5.parts").string()));
  for (const auto& entry : std::filesystem::directory_iterator(dir / "tmp-p.h5.parts"))
    EXPECT_EQ(entry.file_size(), 0u) << entry.path();
}

TEST(PackRestart, RefusesWhatCannotBecomeAPack) {
  const TempDir dir;
  EXPECT_TRUE(contains(error_of([&] { build(dir / "p.h5", Encoder{0}, 0); }), "no item is left"));
  EXPECT_TRUE(contains(error_of([&] { build(dir / "q.h5", [](std::size_t, PackSink& sink) { sink.count(0, 9, 9, 0); }, 3); }),
                       "no item is left of 27 records"));
  std::filesystem::create_directory(dir / "folder");
  EXPECT_TRUE(contains(error_of([&] { build(dir / "folder", Encoder{7}, 1); }), "is a directory"));
  EXPECT_TRUE(contains(error_of([&] { build("/proc/none/p.h5", Encoder{7}, 1); }), "/proc/none"));
  EXPECT_TRUE(contains(
      error_of([&] {
        build(dir / "r.h5", [](std::size_t chunk, PackSink& sink) { sink.add(test::make_item(1, chunk == 0 ? 1 : 2)); }, 2);
      }),
      "items with 1 and with 2 sequences"));
}

TEST(PackRestart, ReportsProgressAndASummary) {
  const TempDir dir;
  const Encoder encoder{50};
  const auto comm = comm::make_self_communicator();
  PackBuilder builder(*comm, dir / "p.h5", make_attributes());
  std::vector<PackProgress> reports;
  builder.on_progress([&](const PackProgress& p) { reports.push_back(p); });
  const PackSummary summary = builder.build(encoder.chunks(), encoder);
  ASSERT_EQ(reports.size(), encoder.chunks());
  EXPECT_EQ(reports.back().items, 50);
  EXPECT_EQ(reports.back().source_bytes, 5000);
  EXPECT_EQ(reports.back().tokens, summary.tokens);
  EXPECT_EQ(summary.items, 50);
  EXPECT_EQ(summary.records, 50 + 16);
  EXPECT_EQ(summary.dropped, 16);
  EXPECT_EQ(summary.file_bytes, static_cast<std::int64_t>(std::filesystem::file_size(dir / "p.h5")));
}

}  // namespace
}  // namespace qft::pack
