// Requirements on every backend, for host memory and for the device that QFT_DEVICE names.
#include "qft/comm/communicator.h"
#include "qft/comm/device_communicator.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "values.h"
#include <gtest/gtest.h>

namespace qft::comm {
namespace {

using qft::test::device_under_test;
using test::kAllTypes;
using test::value_of;
using test::Values;

// Empty, single, odd, larger than MPI's small-message path, and larger than one ring segment for wide types.
const std::size_t kSizes[] = {0, 1, 7, 1000, 70001};
constexpr std::size_t kLarge = (std::size_t{9} << 20) + 5;

class Conformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto& world = Session::current().world();
    if (GetParam() == "self") {
      owned_ = make_self_communicator("self", device_under_test());
    } else if (GetParam() == "halves") {
      owned_ = on_device(*world.split(world.rank() % 2, world.rank(), "half"));
    } else if (GetParam() == "reversed") {
      owned_ = on_device(*world.split(0, -world.rank(), "reversed"));
    } else {
      owned_ = on_device(world);
      owned_->set_checked(GetParam() == "checked");
    }
    comm_ = owned_.get();
    ranks_ = static_cast<std::size_t>(comm_->size());
  }

  static std::unique_ptr<Communicator> on_device(Communicator& host) {
    return make_device_communicator(host, device_under_test(), "copy");
  }
  /// True for NCCL and libraries with its calls, which sum in the type itself and do not support I16.
  bool is_device_library() const { return comm_->backend() == "nccl"; }
  bool reduces(DType dtype) const { return !is_device_library() || dtype != DType::i16; }

  double reduced(std::size_t i, ReduceOp op) const {
    double result = value_of(0, i);
    for (int r = 1; r < comm_->size(); ++r) {
      const double v = value_of(r, i);
      if (op == ReduceOp::sum) result += v;
      if (op == ReduceOp::prod) result *= v;
      if (op == ReduceOp::max) result = std::max(result, v);
      if (op == ReduceOp::min) result = std::min(result, v);
    }
    return result;
  }
  Values mine(DType dtype, std::size_t count) const {
    Values values(dtype, count);
    for (std::size_t i = 0; i < count; ++i) values.set(i, value_of(comm_->rank(), i));
    return values;
  }
  std::size_t own() const { return static_cast<std::size_t>(comm_->rank()); }

  std::unique_ptr<Communicator> owned_;
  Communicator* comm_ = nullptr;
  std::size_t ranks_ = 0;
};

TEST_P(Conformance, KnowsItsRanks) {
  EXPECT_GE(comm_->rank(), 0);
  EXPECT_LT(comm_->rank(), comm_->size());
  EXPECT_EQ(comm_->backend(), comm_->size() == 1 ? "self" : device_under_test().is_cpu() ? "mpi" : "nccl");
  comm_->barrier();
}

TEST_P(Conformance, BroadcastGivesTheRootsData) {
  for (const DType dtype : kAllTypes) {
    for (const std::size_t count : kSizes) {
      const int root = comm_->size() - 1;
      auto values = mine(dtype, count);
      comm_->broadcast(values.data(), count, dtype, root);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values.get(i), value_of(root, i)) << i;
      ASSERT_TRUE(values.intact());
    }
  }
}

TEST_P(Conformance, AllReduceAgreesForEveryTypeOperationAndSize) {
  for (const DType dtype : kAllTypes) {
    if (!reduces(dtype)) continue;
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min}) {
      for (const std::size_t count : kSizes) {
        auto values = mine(dtype, count);
        comm_->all_reduce(values.data(), count, dtype, op);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(values.get(i), reduced(i, op)) << safetensors_name(dtype) << ' ' << name_of(op) << ' ' << i;
        }
        ASSERT_TRUE(values.intact());
      }
    }
  }
}

TEST_P(Conformance, AllReduceOfManySegments) {
  auto values = mine(DType::f32, kLarge);
  comm_->all_reduce(values.data(), kLarge, DType::f32);
  for (std::size_t i = 0; i < kLarge; ++i) ASSERT_EQ(values.get(i), reduced(i, ReduceOp::sum)) << i;
}

TEST_P(Conformance, BooleanReductions) {
  const auto flags = [&] {
    Values flags(DType::boolean, 3);
    flags.set(0, comm_->rank() == 0 ? 1 : 0);
    flags.set(1, 1);
    flags.set(2, 0);
    return flags;
  };
  const auto bits = [](const Values& flags) { return std::vector<double>{flags.get(0), flags.get(1), flags.get(2)}; };
  auto any = flags();
  comm_->all_reduce(any.data(), any.size(), DType::boolean, ReduceOp::max);
  EXPECT_EQ(bits(any), (std::vector<double>{1, 1, 0}));
  auto all = flags();
  comm_->all_reduce(all.data(), all.size(), DType::boolean, ReduceOp::min);
  EXPECT_EQ(bits(all), (std::vector<double>{comm_->size() == 1 ? 1.0 : 0.0, 1, 0}));
  EXPECT_THROW(comm_->all_reduce(all.data(), all.size(), DType::boolean, ReduceOp::sum), Error);
}

TEST_P(Conformance, HalfSumsAreRoundedOnce) {
  // In bf16 256 + 1 rounds back to 256, so a sum that rounds at each step would lose every 1.
  if (comm_->size() < 3) GTEST_SKIP() << "needs 3 ranks";
  if (is_device_library()) GTEST_SKIP() << "NCCL rounds at each hop";
  for (const std::size_t count : {std::size_t{5}, std::size_t{70001}}) {
    Values values(DType::bf16, count);
    for (std::size_t i = 0; i < count; ++i) values.set(i, comm_->rank() == 0 ? 256 : 1);
    comm_->all_reduce(values.data(), count, DType::bf16);
    const double expected = static_cast<double>(c10::BFloat16(256.0F + static_cast<float>(comm_->size() - 1)));
    EXPECT_GT(expected, 256);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values.get(i), expected) << i;
  }
}

TEST_P(Conformance, ReduceScatterGivesEachRankItsSlice) {
  for (const DType dtype : kAllTypes) {
    if (!reduces(dtype)) continue;
    for (const std::size_t count : kSizes) {
      auto send = mine(dtype, count * ranks_);
      Values recv(dtype, count);
      comm_->reduce_scatter(send.data(), recv.data(), count, dtype);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(recv.get(i), reduced(own() * count + i, ReduceOp::sum)) << i;
      ASSERT_TRUE(recv.intact());
    }
  }
}

TEST_P(Conformance, ReduceScatterIntoItsOwnSliceAndWithUnevenSlices) {
  std::vector<std::size_t> counts;
  for (std::size_t r = 0; r < ranks_; ++r) counts.push_back(r == 1 ? 0 : 1500 * r + 3);
  const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const auto offset = std::accumulate(counts.begin(), counts.begin() + comm_->rank(), std::size_t{0});
  auto send = mine(DType::f64, total);
  comm_->reduce_scatter_v(send.data(), send.at(offset), counts, DType::f64, ReduceOp::max);
  for (std::size_t i = 0; i < counts[own()]; ++i) ASSERT_EQ(send.get(offset + i), reduced(offset + i, ReduceOp::max)) << i;
  ASSERT_TRUE(send.intact());
}

TEST_P(Conformance, AllGatherJoinsTheSlices) {
  for (const DType dtype : kAllTypes) {
    for (const std::size_t count : kSizes) {
      auto send = mine(dtype, count);
      Values recv(dtype, count * ranks_);
      comm_->all_gather(send.data(), recv.data(), count, dtype);
      for (std::size_t r = 0; r < ranks_; ++r) {
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(recv.get(r * count + i), value_of(static_cast<int>(r), i));
      }
      ASSERT_TRUE(recv.intact());
    }
  }
}

TEST_P(Conformance, AllGatherInPlaceWithUnevenSlices) {
  for (const std::size_t scale : {std::size_t{1}, std::size_t{30000}}) {
    std::vector<std::size_t> counts;
    for (std::size_t r = 0; r < ranks_; ++r) counts.push_back(scale * r);
    const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const auto offset = std::accumulate(counts.begin(), counts.begin() + comm_->rank(), std::size_t{0});
    Values values(DType::i32, total);
    for (std::size_t i = 0; i < counts[own()]; ++i) values.set(offset + i, value_of(comm_->rank(), i));
    comm_->all_gather_v(values.at(offset), values.data(), counts, DType::i32);
    std::size_t at = 0;
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (std::size_t i = 0; i < counts[r]; ++i) ASSERT_EQ(values.get(at++), value_of(static_cast<int>(r), i));
    }
    ASSERT_TRUE(values.intact());
  }
}

TEST_P(Conformance, AllToAllTransposes) {
  for (const std::size_t count : kSizes) {
    Values send(DType::i64, count * ranks_);
    Values recv(DType::i64, count * ranks_);
    for (std::size_t to = 0; to < ranks_; ++to) {
      for (std::size_t i = 0; i < count; ++i) send.set(to * count + i, static_cast<double>(own() * 100 + to * 10 + i % 7));
    }
    comm_->all_to_all(send.data(), recv.data(), count, DType::i64);
    for (std::size_t from = 0; from < ranks_; ++from) {
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(recv.get(from * count + i), static_cast<double>(from * 100 + own() * 10 + i % 7));
      }
    }
  }
}

TEST_P(Conformance, AllToAllWithUnevenSlices) {
  // Rank a sends a + 2 b elements to rank b, including itself; some counts are 0.
  std::vector<std::size_t> send_counts;
  std::vector<std::size_t> recv_counts;
  for (std::size_t r = 0; r < ranks_; ++r) {
    send_counts.push_back(own() + 2 * r);
    recv_counts.push_back(r + 2 * own());
  }
  Values send(DType::bf16, std::accumulate(send_counts.begin(), send_counts.end(), std::size_t{0}));
  Values recv(DType::bf16, std::accumulate(recv_counts.begin(), recv_counts.end(), std::size_t{0}));
  for (std::size_t i = 0; i < send.size(); ++i) send.set(i, comm_->rank());
  comm_->all_to_all_v(send.data(), send_counts, recv.data(), recv_counts, DType::bf16);
  std::size_t at = 0;
  for (std::size_t r = 0; r < ranks_; ++r) {
    for (std::size_t i = 0; i < recv_counts[r]; ++i) ASSERT_EQ(recv.get(at++), static_cast<double>(r));
  }
}

TEST_P(Conformance, MessagesRoundTheRing) {
  if (comm_->size() == 1) GTEST_SKIP() << "needs 2 ranks";
  const int right = (comm_->rank() + 1) % comm_->size();
  const int left = (comm_->rank() + comm_->size() - 1) % comm_->size();
  for (const std::size_t count : kSizes) {
    auto out = mine(DType::f32, count);
    Values in(DType::f32, count);
    if (is_device_library() && comm_->rank() % 2 == 1) {  // a send there delays later operations until its peer receives
      comm_->recv(in.data(), count, DType::f32, left, 9);
      comm_->send(out.data(), count, DType::f32, right, 9);
    } else {
      Work sent = comm_->start_send(out.data(), count, DType::f32, right, 9);
      comm_->recv(in.data(), count, DType::f32, left, 9);
      sent.wait();
    }
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(in.get(i), value_of(left, i));
  }
}

TEST_P(Conformance, SplitGroupsByColourAndOrdersByKey) {
  const int rank = comm_->rank();
  auto part = comm_->split(rank % 2, -rank, "part");
  const int members = (comm_->size() + (rank % 2 == 0 ? 1 : 0)) / 2;
  EXPECT_EQ(part->size(), members);
  EXPECT_EQ(part->rank(), members - 1 - rank / 2);
  EXPECT_EQ(part->name(), "part");
  Values sum(DType::i32, 1);
  sum.set(0, rank);
  part->all_reduce(sum.data(), 1, DType::i32);
  std::int32_t expected = 0;
  for (int r = rank % 2; r < comm_->size(); r += 2) expected += r;
  EXPECT_EQ(sum.get(0), expected);
}

TEST_P(Conformance, CountsCallsAndBytesByTheClosedForms) {
  comm_->reset_counters();
  Values data(DType::f32, 12 * ranks_);
  Values slice(DType::f32, 12);
  comm_->all_reduce(data.data(), data.size(), DType::f32);
  comm_->all_gather(slice.data(), data.data(), slice.size(), DType::f32);
  comm_->reduce_scatter(data.data(), slice.data(), slice.size(), DType::f32);
  comm_->broadcast(data.data(), data.size(), DType::f32, 0);
  const auto& counters = comm_->counters();
  const auto at = [](OpKind kind) { return static_cast<std::size_t>(kind); };
  EXPECT_EQ(counters.calls[at(OpKind::all_reduce)], 1U);
  EXPECT_EQ(counters.bytes[at(OpKind::all_reduce)], 2 * 48 * (ranks_ - 1));
  EXPECT_EQ(counters.bytes[at(OpKind::all_gather)], 48 * (ranks_ - 1));
  EXPECT_EQ(counters.bytes[at(OpKind::reduce_scatter)], 48 * (ranks_ - 1));
  EXPECT_EQ(counters.bytes[at(OpKind::broadcast)], comm_->rank() == 0 ? 0 : 48 * ranks_);
  const auto last = last_collective();
  EXPECT_GE(last.number, 4U);
  EXPECT_EQ(last.communicator, comm_->name());
  EXPECT_EQ(last.call, "broadcast(F32, " + std::to_string(12 * ranks_) + ", root 0)");
}

TEST_P(Conformance, RefusesBadArgumentsBeforeAnythingIsSent) {
  float value = 0;
  EXPECT_THROW(comm_->broadcast(&value, 1, DType::f32, comm_->size()), Error);
  EXPECT_THROW(comm_->broadcast(&value, 1, DType::f32, -1), Error);
  EXPECT_THROW(comm_->all_reduce(nullptr, 1, DType::f32), Error);
  EXPECT_THROW(comm_->send(&value, 1, DType::f32, comm_->rank()), Error);
  EXPECT_THROW(comm_->recv(&value, 1, DType::f32, comm_->size()), Error);
  EXPECT_THROW(comm_->split(-1, 0, "none"), Error);
  const std::vector<std::size_t> counts(ranks_ + 1, 1);
  EXPECT_THROW(comm_->all_gather_v(&value, &value, counts, DType::f32), Error);
  try {
    comm_->broadcast(&value, 1, DType::f32, 99);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("root 99 is not a rank of '" + comm_->name()), std::string::npos) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, testing::Values("self", "world", "checked", "halves", "reversed"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace qft::comm
