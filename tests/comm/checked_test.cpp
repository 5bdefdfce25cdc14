// Checked mode: if ranks disagree about a collective, all get the same error instead of a hang.
#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace qft::comm {
namespace {

class Checked : public testing::Test {
 protected:
  void SetUp() override {
    auto& world = Session::current().world();
    if (world.size() == 1) GTEST_SKIP() << "needs 2 ranks";
    comm_ = world.split(0, world.rank(), "checked");
    comm_->set_checked(true);
    last_ = comm_->rank() == comm_->size() - 1;
  }

  // Returns the error's text, which must be the same on all ranks.
  template <class F>
  std::string error_of(F&& call) {
    std::string text = "no error";
    try {
      call();
    } catch (const Error& e) {
      text = e.what();
    }
    for (const auto& other : all_gather_strings(Session::current().world(), text)) EXPECT_EQ(other, text);
    return text;
  }

  std::unique_ptr<Communicator> comm_;
  bool last_ = false;
};

TEST_F(Checked, NamesBothOperations) {
  float value = 1;
  const auto text = error_of([&] {
    if (last_) {
      comm_->broadcast(&value, 1, DType::f32, 0);
    } else {
      comm_->all_reduce(&value, 1, DType::f32);
    }
  });
  EXPECT_NE(text.find("rank 0 calls all_reduce(sum, F32, 1)"), std::string::npos) << text;
  EXPECT_NE(text.find("calls broadcast(F32, 1, root 0)"), std::string::npos) << text;
  EXPECT_NE(text.find("'checked'"), std::string::npos) << text;
}

TEST_F(Checked, NamesBothCountsAndTypes) {
  std::vector<double> data(8);
  const auto count = error_of([&] { comm_->all_reduce(data.data(), last_ ? 7 : 8, DType::f64); });
  EXPECT_NE(count.find("all_reduce(sum, F64, 8)"), std::string::npos) << count;
  EXPECT_NE(count.find("all_reduce(sum, F64, 7)"), std::string::npos) << count;
  const auto type = error_of([&] { comm_->all_reduce(data.data(), 8, last_ ? DType::f32 : DType::f64); });
  EXPECT_NE(type.find("F32"), std::string::npos) << type;
  const auto op = error_of([&] { comm_->all_reduce(data.data(), 8, DType::f64, last_ ? ReduceOp::max : ReduceOp::sum); });
  EXPECT_NE(op.find("all_reduce(max"), std::string::npos) << op;
}

TEST_F(Checked, SeesSlicesThatDiffer) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(comm_->size()), 2);
  if (last_) {
    counts[0] = 1;
    counts[1] = 3;
  }
  std::vector<float> data(64);
  const auto gather = error_of([&] { comm_->all_gather_v(data.data() + 32, data.data(), counts, DType::f32); });
  EXPECT_NE(gather.find("with other counts per rank"), std::string::npos) << gather;
  std::vector<std::size_t> even(counts.size(), 2);
  std::vector<std::size_t> wrong = even;
  wrong[0] = 5;
  std::vector<float> out(64);
  const auto all_to_all = error_of([&] { comm_->all_to_all_v(data.data(), last_ ? wrong : even, out.data(), even, DType::f32); });
  EXPECT_NE(all_to_all.find("elements to rank 0, which expects 2"), std::string::npos) << all_to_all;
}

TEST_F(Checked, AgreementPassesAndTheGroupStaysUsable) {
  float value = 1;
  error_of([&] { comm_->all_reduce(&value, last_ ? 0 : 1, DType::f32); });
  value = 1;
  comm_->all_reduce(&value, 1, DType::f32);
  EXPECT_EQ(value, static_cast<float>(comm_->size()));
}

}  // namespace
}  // namespace qft::comm
