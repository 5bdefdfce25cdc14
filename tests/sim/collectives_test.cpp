// Tests the stand-in for NCCL alone: each rank is a thread with its own device.
#include "collectives.h"

#include "qft/comm/collective_library.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "fixture.h"

namespace qft::sim {
namespace {

using namespace std::chrono_literals;
using comm::ReduceOp;
using Library = comm::CollectiveLibrary;
using Result = Library::Result;

constexpr int kDevices = 4;
const bool kAsked = setenv("QFT_SIM_DEVICES", std::to_string(kDevices).c_str(), 1) == 0;

const Library& library() {
  return *static_cast<const Library*>(comm_part());
}

/// Polls until `result` is no longer in progress; nullopt if that takes too long.
Result finish(Library::Group group, Result result) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (result == Result::in_progress && std::chrono::steady_clock::now() < end) {
    result = library().state(group);
    if (result == Result::in_progress) std::this_thread::sleep_for(100us);
  }
  return result;
}

/// One rank in one thread.
struct Rank {
  int rank = 0, size = 0;
  Library::Group group = nullptr;

  c10::Device device() const { return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(rank)}; }
  c10::Stream stream() const { return c10::Stream(c10::Stream::DEFAULT, device()); }
  Library::Stream native() const { return stream().native_handle(); }
  void start(const Library::UniqueId& id) {
    const Result begun = library().init(group, size, id, rank);
    ASSERT_EQ(finish(group, begun), Result::ok) << library().last_error(group);
  }
  void stop() {
    EXPECT_EQ(finish(group, library().finalize(group)), Result::ok) << library().last_error(group);
    library().destroy(group);
  }
  void ok(Result result) const { ASSERT_EQ(finish(group, result), Result::ok) << library().last_error(group); }
  std::string error() const { return library().last_error(group); }
  /// Waits until the group has failed.
  std::string failure() const {
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (library().state(group) != Result::failed && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
    return library().state(group) == Result::failed ? error() : "no failure";
  }
  at::Tensor tensor(const at::Tensor& host) const { return host.to(device()); }
};

Library::UniqueId new_id() {
  Library::UniqueId id{};
  EXPECT_EQ(library().unique_id(id), Result::ok);
  return id;
}

class Collectives : public Sim {
 protected:
  Collectives() { limit_waits(0ms); }
  ~Collectives() override { clear_faults(); }
  void TearDown() override {
    for (int d = 0; d < kDevices; ++d) guard().synchronizeDevice(static_cast<c10::DeviceIndex>(d));
    Sim::TearDown();
  }

  static void in_threads(int size, const std::function<void(Rank&)>& work) {
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r)
      threads.emplace_back([&, r] {
        Rank rank{r, size};
        guard().setDevice(rank.device());
        work(rank);
      });
    for (auto& thread : threads) thread.join();
  }
  /// Runs `work` with a group, from init to destroy.
  static void on_ranks(int size, const std::function<void(Rank&)>& work) {
    const auto id = new_id();
    in_threads(size, [&](Rank& rank) {
      rank.start(id);
      work(rank);
      rank.stop();
    });
  }
  /// Runs `work` with a group that all ranks abort.
  static void on_failing_ranks(int size, const std::function<void(Rank&)>& work) {
    const auto id = new_id();
    std::atomic<int> finished{0};
    in_threads(size, [&](Rank& rank) {
      rank.start(id);
      work(rank);
      ++finished;
      while (finished < size) std::this_thread::sleep_for(1ms);
      library().abort(rank.group);
    });
  }
  static void expect_words(const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text << "\nlacks: " << word;
  }
};

at::Tensor values(int rank, std::int64_t count, c10::ScalarType type = at::kFloat) {
  return ((at::arange(count) * 7 + rank * 3) % 3 + 1).to(type);
}

at::Tensor summed(int size, std::int64_t count, c10::ScalarType type = at::kFloat) {
  at::Tensor sum = values(0, count, type);
  for (int r = 1; r < size; ++r) sum = sum + values(r, count, type);
  return sum;
}

const std::vector<std::int64_t> kCounts{0, 1, 7, 70001, 300007};  // the last two need several chunks

TEST_F(Collectives, ReduceForEveryRankCountAndSize) {
  for (int size = 1; size <= kDevices; ++size)
    on_ranks(size, [](Rank& r) {
      for (const std::int64_t n : kCounts) {
        const auto count = static_cast<std::size_t>(n);
        const at::Tensor all = r.tensor(values(r.rank, n));
        r.ok(library().all_reduce(all.data_ptr(), count, DType::f32, ReduceOp::sum, r.group, r.native()));
        EXPECT_TRUE(at::equal(all.cpu(), summed(r.size, n))) << n;
        const at::Tensor whole = r.tensor(values(r.rank, n * r.size));
        const at::Tensor slice = r.tensor(at::zeros({n}));
        r.ok(library().reduce_scatter(whole.data_ptr(), slice.data_ptr(), count, DType::f32, ReduceOp::sum, r.group, r.native()));
        EXPECT_TRUE(at::equal(slice.cpu(), summed(r.size, n * r.size).narrow(0, n * r.rank, n))) << n;
        const at::Tensor rooted = r.tensor(at::zeros({n}));
        r.ok(library().reduce(all.data_ptr(), rooted.data_ptr(), count, DType::f32, ReduceOp::sum, r.size - 1, r.group,
                              r.native()));
        EXPECT_TRUE(at::equal(rooted.cpu(), r.rank == r.size - 1 ? summed(r.size, n) * r.size : at::zeros({n}))) << n;
      }
    });
}

TEST_F(Collectives, MoveBytesForEveryRankCountAndSize) {
  for (int size = 1; size <= kDevices; ++size)
    on_ranks(size, [](Rank& r) {
      for (const std::int64_t n : kCounts) {
        const auto bytes = static_cast<std::size_t>(n) * 4;
        const at::Tensor one = r.tensor(values(r.rank, n));
        const at::Tensor all = r.tensor(at::zeros({n * r.size}));
        r.ok(library().all_gather(one.data_ptr(), all.data_ptr(), bytes, r.group, r.native()));
        for (int other = 0; other < r.size; ++other)
          EXPECT_TRUE(at::equal(all.cpu().narrow(0, n * other, n), values(other, n))) << n;
        const at::Tensor got = r.tensor(at::zeros({n}));
        r.ok(library().broadcast(one.data_ptr(), got.data_ptr(), bytes, r.size - 1, r.group, r.native()));
        EXPECT_TRUE(at::equal(got.cpu(), values(r.size - 1, n))) << n;
      }
    });
}

TEST_F(Collectives, WorkInPlace) {
  on_ranks(3, [](Rank& r) {
    const std::int64_t n = 100003;
    at::Tensor host = at::zeros({3 * n});
    host.narrow(0, n * r.rank, n).copy_(values(r.rank, n));
    const at::Tensor all = r.tensor(host);
    r.ok(library().all_gather(all.narrow(0, n * r.rank, n).data_ptr(), all.data_ptr(), n * 4, r.group, r.native()));
    for (int other = 0; other < 3; ++other) EXPECT_TRUE(at::equal(all.cpu().narrow(0, n * other, n), values(other, n)));
    const at::Tensor whole = r.tensor(values(r.rank, 3 * n));
    const at::Tensor slice = whole.narrow(0, n * r.rank, n);
    r.ok(library().reduce_scatter(whole.data_ptr(), slice.data_ptr(), n, DType::f32, ReduceOp::max, r.group, r.native()));
    at::Tensor most = values(0, 3 * n);
    for (int other = 1; other < 3; ++other) most = at::maximum(most, values(other, 3 * n));
    EXPECT_TRUE(at::equal(slice.cpu(), most.narrow(0, n * r.rank, n)));
  });
}

TEST_F(Collectives, ReduceInRankOrderAndRoundOnce) {
  std::vector<at::Tensor> results(3);
  on_ranks(3, [&](Rank& r) {
    const at::Tensor data = r.tensor(at::full({5}, r.rank == 0 ? 256.0 : 1.0).to(at::kBFloat16));
    r.ok(library().all_reduce(data.data_ptr(), 5, DType::bf16, ReduceOp::sum, r.group, r.native()));
    EXPECT_TRUE(at::equal(data.cpu(), at::full({5}, 258.0).to(at::kBFloat16)));
    const at::Tensor thirds = r.tensor(at::full({1001}, 1.0F / static_cast<float>(3 + 7 * r.rank)));
    r.ok(library().all_reduce(thirds.data_ptr(), 1001, DType::f32, ReduceOp::sum, r.group, r.native()));
    results[static_cast<std::size_t>(r.rank)] = thirds.cpu();
    for (const auto type : {at::kDouble, at::kLong, at::kInt, at::kChar, at::kByte, at::kHalf}) {
      const DType dtype = type == at::kDouble ? DType::f64
                          : type == at::kLong ? DType::i64
                          : type == at::kInt  ? DType::i32
                          : type == at::kChar ? DType::i8
                          : type == at::kByte ? DType::u8
                                              : DType::f16;
      const at::Tensor typed = r.tensor(values(r.rank, 9, type));
      r.ok(library().all_reduce(typed.data_ptr(), 9, dtype, ReduceOp::prod, r.group, r.native()));
      EXPECT_TRUE(at::equal(typed.cpu(), values(0, 9, type) * values(1, 9, type) * values(2, 9, type))) << type;
    }
  });
  const float in_order = 1.0F / 3 + 1.0F / 10 + 1.0F / 17;
  for (const at::Tensor& result : results) EXPECT_TRUE(at::equal(result, at::full({1001}, in_order)));
}

TEST_F(Collectives, MessagesOfAGroupGoAtOnce) {
  on_ranks(4, [](Rank& r) {
    const std::int64_t n = 200001;  // more than fits between two ranks
    const at::Tensor out = r.tensor(values(r.rank, n * 4));
    const at::Tensor in = r.tensor(at::zeros({n * 4}));
    library().group_start();
    for (int peer = 0; peer < 4; ++peer) {
      EXPECT_EQ(library().send(out.narrow(0, n * peer, n).data_ptr(), n * 4, peer, r.group, r.native()), Result::ok);
      EXPECT_EQ(library().recv(in.narrow(0, n * peer, n).data_ptr(), n * 4, peer, r.group, r.native()), Result::ok);
    }
    r.ok(library().group_end());
    for (int peer = 0; peer < 4; ++peer)
      EXPECT_TRUE(at::equal(in.cpu().narrow(0, n * peer, n), values(peer, n * 4).narrow(0, n * r.rank, n)));
  });
}

TEST_F(Collectives, SeveralGroupsAtOnce) {
  const auto first = new_id();
  const auto second = new_id();
  in_threads(4, [&](Rank& r) {
    r.start(first);
    Rank half{r.rank / 2, 2};  // ranks 0 and 2, in the other ranks' order
    if (r.rank % 2 == 0) {
      const Result begun = library().init(half.group, 2, second, half.rank);
      ASSERT_EQ(finish(half.group, begun), Result::ok);
      const at::Tensor data = r.tensor(values(half.rank, 1000));
      half.ok(library().all_reduce(data.data_ptr(), 1000, DType::f32, ReduceOp::sum, half.group, r.native()));
      EXPECT_TRUE(at::equal(data.cpu(), summed(2, 1000)));
    }
    const at::Tensor data = r.tensor(values(r.rank, 1000));
    r.ok(library().all_reduce(data.data_ptr(), 1000, DType::f32, ReduceOp::sum, r.group, r.native()));
    EXPECT_TRUE(at::equal(data.cpu(), summed(4, 1000)));
    if (r.rank % 2 == 0) half.stop();
    r.stop();
  });
}

TEST_F(Collectives, AGraphRepeatsThem) {
  on_ranks(2, [](Rank& r) {
    const at::Tensor data = r.tensor(at::ones({10}));
    r.stream().synchronize();
    const auto recorder = backend().recorder(r.rank);
    const c10::Stream stream = guard().getStreamFromGlobalPool(r.device(), false);
    const auto graph = recorder->capture(stream, [&] {
      r.ok(library().all_reduce(data.data_ptr(), 10, DType::f32, ReduceOp::sum, r.group, stream.native_handle()));
    });
    EXPECT_TRUE(at::equal(data.cpu(), at::ones({10})));
    for (int i = 0; i < 3; ++i) graph->replay();
    EXPECT_TRUE(at::equal(data.cpu(), at::full({10}, 8.0F)));
  });
}

TEST_F(Collectives, AreSeenByTheCheckOfOrder) {
  on_ranks(2, [](Rank& r) {
    const at::Tensor data = at::ones({10}, at::TensorOptions(r.device()));
    const c10::Stream other = guard().getStreamFromGlobalPool(r.device(), false);
    const Result result = library().all_reduce(data.data_ptr(), 10, DType::f32, ReduceOp::sum, r.group, other.native_handle());
    try {
      finish(r.group, result);
      ADD_FAILURE() << "data is written and reduced in two streams, with no order between them";
    } catch (const c10::Error& e) {
      expect_words(e.what(), {"all_reduce(sum, F32, 10) of rank", "no order between them"});
    }
  });
  EXPECT_EQ(errors().size(), 2U);
}

TEST_F(Collectives, InitIsUnderWayUntilAllHaveCome) {
  const auto id = new_id();
  std::atomic<bool> first_waits{false};
  in_threads(2, [&](Rank& r) {
    if (r.rank == 0) {
      EXPECT_EQ(library().init(r.group, 2, id, 0), Result::in_progress);
      for (int i = 0; i < 10; ++i) EXPECT_EQ(library().state(r.group), Result::in_progress);
      first_waits = true;
      EXPECT_EQ(finish(r.group, Result::in_progress), Result::ok);
    } else {
      while (!first_waits) std::this_thread::sleep_for(1ms);
      r.start(id);
    }
    r.stop();
  });
}

TEST_F(Collectives, InitRefusesWhatCannotBeAGroup) {
  const auto id = new_id();
  guard().setDevice(device());
  Library::Group one = nullptr;
  Library::Group two = nullptr;
  EXPECT_EQ(library().init(one, 2, id, 0), Result::in_progress);
  EXPECT_EQ(library().init(two, 2, id, 0), Result::failed);
  expect_words(library().last_error(nullptr), {"rank 0 of 2 is taken"});
  EXPECT_EQ(library().init(two, 3, id, 1), Result::failed);
  expect_words(library().last_error(nullptr), {"joins a group of 3, but another rank joined one of 2"});
  Library::UniqueId nonsense{};
  EXPECT_EQ(library().init(two, 2, nonsense, 1), Result::failed);
  expect_words(library().last_error(nullptr), {"is not a unique id"});
  library().abort(one);
}

TEST_F(Collectives, AnotherProcessThatDiesIsNoticed) {
  // The other rank joins and its process ends at once, as if killed: a plain fork has no device thread.
  const auto id = new_id();
  Rank r{0, 2};
  guard().setDevice(r.device());
  const pid_t child = fork();
  if (child == 0) {
    Library::Group group = nullptr;
    library().init(group, 2, id, 1);
    usleep(300000);
    _exit(0);
  }
  r.start(id);
  const at::Tensor data = r.tensor(at::ones({10}));
  r.ok(library().all_reduce(data.data_ptr(), 10, DType::f32, ReduceOp::sum, r.group, r.native()));
  expect_words(r.failure(), {"all_reduce(sum, F32, 10) of rank 0 of 2 waits for rank 1, whose process has ended"});
  library().abort(r.group);
  waitpid(child, nullptr, 0);
}

TEST_F(Collectives, RefuseMemoryThatIsNotOfTheirDevice) {
  on_ranks(2, [](Rank& r) {
    const auto refused = [&](void* data, std::size_t count, const std::vector<std::string>& words) {
      EXPECT_EQ(library().all_reduce(data, count, DType::f32, ReduceOp::sum, r.group, r.native()), Result::failed);
      expect_words(r.error(), {"all_reduce(sum, F32, "});
      expect_words(r.error(), words);
    };
    std::vector<float> host(10);
    refused(host.data(), 10, {"memory of the host"});
    const at::Tensor fixed = pinned({10});
    refused(fixed.data_ptr(), 10, {"is pinned memory of the host"});
    at::Tensor data = r.tensor(at::ones({10}));
    refused(data.data_ptr(), 11, {"has 44 bytes from byte 0 of allocation", "which has 40 bytes"});
    refused(data.narrow(0, 5, 5).data_ptr(), 6, {"has 24 bytes from byte 20 of allocation"});
    void* const freed = data.data_ptr();
    data.reset();
    refused(freed, 10, {"memory of the device that is not allocated"});
    guard().setDevice(c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(1 - r.rank)));
    const at::Tensor foreign =
        at::empty({10}, at::TensorOptions(c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(1 - r.rank))));
    guard().setDevice(r.device());
    refused(foreign.data_ptr(), 10, {"is memory of device", "but the group was made for device"});
    const at::Tensor whole = r.tensor(at::ones({10}));
    EXPECT_EQ(library().all_gather(whole.narrow(0, 1, 4).data_ptr(), whole.data_ptr(), 16, r.group, r.native()), Result::failed);
    expect_words(r.error(), {"overlap, but not as in place"});
  });
}

TEST_F(Collectives, NameCallsThatDoNotMatch) {
  struct Case {
    std::function<Result(Rank&, void*)> first, second;
    std::vector<std::string> words;
  };
  const auto reduce = [](std::size_t count, DType dtype, ReduceOp op) {
    return [=](Rank& r, void* data) { return library().all_reduce(data, count, dtype, op, r.group, r.native()); };
  };
  const auto broadcast = [](int root) {
    return [=](Rank& r, void* data) { return library().broadcast(data, data, 16, root, r.group, r.native()); };
  };
  const auto send = [](std::size_t bytes, int to) {
    return [=](Rank& r, void* data) { return library().send(data, bytes, to, r.group, r.native()); };
  };
  const auto recv = [](std::size_t bytes, int from) {
    return [=](Rank& r, void* data) { return library().recv(data, bytes, from, r.group, r.native()); };
  };
  const auto sum = reduce(4, DType::f32, ReduceOp::sum);
  const std::string plain = "all_reduce(sum, F32, 4)";
  const std::vector<Case> cases{
      {sum, reduce(5, DType::f32, ReduceOp::sum), {plain, "all_reduce(sum, F32, 5)"}},
      {sum, reduce(4, DType::bf16, ReduceOp::sum), {plain, "all_reduce(sum, BF16, 4)"}},
      {sum, reduce(4, DType::f32, ReduceOp::max), {plain, "all_reduce(max, F32, 4)"}},
      {sum, broadcast(0), {plain, "broadcast(16 bytes, root 0)"}},
      {broadcast(0), broadcast(1), {"broadcast(16 bytes, root 0)", "broadcast(16 bytes, root 1)"}},
      {sum, send(16, 0), {plain, "send(16 bytes, rank 0)"}},
      {send(16, 1), recv(12, 0), {"send(16 bytes, rank 1)", "recv(12 bytes, rank 0)"}},
  };
  for (const Case& one : cases)
    on_failing_ranks(2, [&](Rank& r) {
      const at::Tensor data = r.tensor(at::ones({10}));
      r.ok((r.rank == 0 ? one.first : one.second)(r, data.data_ptr()));
      const std::string failure = r.failure();
      expect_words(failure, {"the ranks' calls do not match: rank", "where rank"});
      expect_words(failure, one.words);
    });
}

TEST_F(Collectives, NameRanksThatWaitForEachOther) {
  on_failing_ranks(3, [](Rank& r) {
    const at::Tensor data = r.tensor(at::ones({10}));
    r.ok(library().send(data.data_ptr(), 40, (r.rank + 1) % 3, r.group, r.native()));  // and only then a recv
    expect_words(r.failure(), {"wait for each other without end", "rank 0 in send(40 bytes, rank 1)",
                               "rank 2 in send(40 bytes, rank 0)", "group_start"});
  });
}

TEST_F(Collectives, EndAtOnceWhereAPeerAborts) {
  const auto id = new_id();
  in_threads(2, [&](Rank& r) {
    r.start(id);
    const at::Tensor data = r.tensor(at::ones({10}));
    if (r.rank == 0) {
      r.ok(library().all_reduce(data.data_ptr(), 10, DType::f32, ReduceOp::sum, r.group, r.native()));
      expect_words(r.failure(), {"all_reduce(sum, F32, 10) of rank 0 of 2 waits for rank 1, which has aborted the group"});
      EXPECT_FALSE(r.stream().query());  // it hangs, as on a GPU
    } else {
      std::this_thread::sleep_for(100ms);
    }
    library().abort(r.group);
    r.stream().synchronize();
  });
}

TEST_F(Collectives, RefuseCallsOutOfTurn) {
  EXPECT_EQ(library().group_end(), Result::failed);
  expect_words(library().last_error(nullptr), {"a group_end without group_start"});
  on_ranks(2, [](Rank& r) {
    const at::Tensor data = r.tensor(at::ones({10}));
    const auto reduce = [&] { return library().all_reduce(data.data_ptr(), 10, DType::f32, ReduceOp::sum, r.group, r.native()); };
    library().group_start();
    EXPECT_EQ(reduce(), Result::ok);
    std::thread([&] {
      EXPECT_EQ(reduce(), Result::failed);
      expect_words(r.error(), {"two threads call at once", "all_reduce(sum, F32, 10)"});
    }).join();
    EXPECT_EQ(library().finalize(r.group), Result::failed);
    expect_words(r.error(), {"a group_start without group_end", "all_reduce(sum, F32, 10)"});
    const Result ended = library().group_end();
    EXPECT_EQ(reduce(), Result::failed);
    expect_words(r.error(), {"before state() said that all_reduce(sum, F32, 10)"});
    r.ok(ended);
    EXPECT_TRUE(at::equal(data.cpu(), at::full({10}, 2.0F)));
  });
  const auto id = new_id();
  in_threads(2, [&](Rank& r) {
    r.start(id);
    library().abort(r.group);
    const at::Tensor data = r.tensor(at::ones({10}));
    EXPECT_EQ(library().all_reduce(data.data_ptr(), 10, DType::f32, ReduceOp::sum, r.group, r.native()), Result::failed);
    expect_words(r.error(), {"(sum, F32, 10) on a group that was aborted"});
  });
}

TEST_F(Collectives, AnOpenGroupAtTheEndOfAThreadIsAnError) {
  std::thread([] { library().group_start(); }).join();
  expect_error({"a group_start without group_end", "its thread has ended"});
}

TEST_F(Collectives, TakeFaultsInWords) {
  for (const char* wrong : {"", "call", "calls:1", "call:0", "stall:1@", "stall:1@2x", "error:1x", "@1:2"})
    EXPECT_THROW(inject(wrong), c10::Error) << wrong;
  inject("stall:1@3");
  inject("error:7");
}

TEST_F(Collectives, FailWhereTheyAreToldTo) {
  inject("call:2@1");
  on_ranks(2, [](Rank& r) {
    const at::Tensor data = r.tensor(at::ones({10}));
    const auto reduce = [&] { return library().all_reduce(data.data_ptr(), 10, DType::f32, ReduceOp::sum, r.group, r.native()); };
    r.ok(reduce());
    Result second = reduce();
    if (r.rank == 1) {
      EXPECT_EQ(second, Result::failed);
      expect_words(r.error(), {"all_reduce(sum, F32, 10) of rank 1 of 2: told to fail"});
      second = reduce();
    }
    r.ok(second);
    EXPECT_TRUE(at::equal(data.cpu(), at::full({10}, 4.0F)));
  });
}

TEST_F(Collectives, AStalledRankIsNamedByThoseThatWait) {
  inject(Fault::stall, 2, 1);
  limit_waits(500ms);
  on_failing_ranks(2, [](Rank& r) {
    const at::Tensor data = r.tensor(at::ones({10}));
    for (int i = 0; i < 2; ++i) r.ok(library().all_reduce(data.data_ptr(), 10, DType::f32, ReduceOp::sum, r.group, r.native()));
    if (r.rank == 1) return;
    expect_words(r.failure(),
                 {"all_reduce(sum, F32, 10) of rank 0 of 2 waits for rank 1 (1 launches begun", "for more than 500 ms"});
  });
}

TEST_F(Collectives, AnErrorAfterAnOperationShowsInTheState) {
  inject(Fault::error, 1, 0);
  on_failing_ranks(2, [](Rank& r) {
    const at::Tensor data = r.tensor(at::ones({10}));
    r.ok(library().all_reduce(data.data_ptr(), 10, DType::f32, ReduceOp::sum, r.group, r.native()));
    EXPECT_TRUE(at::equal(data.cpu(), at::full({10}, 2.0F)));
    if (r.rank == 0) expect_words(r.failure(), {"told to fail after all_reduce(sum, F32, 10)"});
  });
}

}  // namespace
}  // namespace qft::sim
