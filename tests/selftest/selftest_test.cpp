// Tests that the self-test passes on a healthy machine, and that each group of checks fails if something is wrong.
#include "qft/comm/device_communicator.h"
#include "qft/core/error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "selftest/runner.h"
#include "support/device_under_test.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace qft::selftest {
namespace {

comm::Session& session() {
  return comm::Session::current();
}

constexpr const char* kGroups[] = {"copies",    "kernels",     "optimizers", "products",
                                   "attention", "collectives", "steps",      "decoding"};
/// A few small checks of each group.
constexpr const char* kFew =
    "copies/(pinned|pageable|conv|graphs)|kernels/.*fp32, (1|7|37) |optimizers/.*fp32, 1029|products/.*fp32, (1|37) "
    "|attention/.*fp32.*64$|"
    "collectives/.*f32, 1009|steps/ddp/full, fp64, (plain|graphs)|steps/zero3/LoRA, fp32|decoding/.*fp32, qwen3, ddp";

std::set<std::string> groups_of(const Report& report, Verdict verdict) {
  std::set<std::string> groups;
  for (const Row& row : report.rows)
    if (row.verdict == verdict) groups.insert(row.group);
  return groups;
}

TEST(Selftest, PassesInEachGroup) {
  const Report report = run(session(), {.device = test::device_under_test(), .only = kFew});
  for (const Row& row : report.rows) EXPECT_NE(row.verdict, Verdict::failed) << to_text(row);
  EXPECT_EQ(groups_of(report, Verdict::ok), std::set<std::string>(std::begin(kGroups), std::end(kGroups)));
  EXPECT_TRUE(report.passed());
  EXPECT_NE(report.summary().find("selftest passed: "), std::string::npos) << report.summary();
  EXPECT_EQ(report.count(Verdict::ok) + report.count(Verdict::skipped), static_cast<std::int64_t>(report.rows.size()));
}

/// A change to a result that checks must notice.
struct Tampering {
  const char* name;
  void (*apply)(at::Tensor& values);
};
constexpr Tampering kTamperings[] = {
    {"one element", [](at::Tensor& v) { v.view(-1)[v.numel() - 1].add_(1.0 + v.abs().max().item<double>()); }},
    {"a thousandth", [](at::Tensor& v) { v.mul_(1.001).add_(1e-3); }},
    {"not a number", [](at::Tensor& v) { v.view(-1)[0].fill_(std::numeric_limits<double>::quiet_NaN()); }}};

TEST(Selftest, FailsInEachCheckWhoseResultsAreOff) {
  for (const Tampering& harm : kTamperings) {
    const bool all = &harm == &kTamperings[0];
    const Report report = run(session(), {.device = c10::kCPU,
                                          .only = all ? kFew : "kernels/.*fp32, (1|7) |steps/ddp/full, fp64, plain",
                                          .tamper = [&](const Row&, std::string_view result, at::Tensor& v) {
                                            // A result that is only an error is a scalar, 0 at best.
                                            if (result != "the update of the weights") harm.apply(v);
                                          }});
    for (const Row& row : report.rows) {
      if (row.verdict == Verdict::skipped || row.setting.starts_with("all ranks,") || row.what == "groups") continue;
      EXPECT_EQ(row.verdict, Verdict::failed) << harm.name << ": " << row.name();
      EXPECT_EQ(row.failures.size(), static_cast<std::size_t>(session().size())) << row.name();
      EXPECT_FALSE(row.meaning.empty() || row.advice.empty()) << row.name();
    }
    EXPECT_FALSE(report.passed());
    if (all) {
      EXPECT_EQ(groups_of(report, Verdict::failed), std::set<std::string>(std::begin(kGroups), std::end(kGroups)));
    }
    EXPECT_NE(report.summary().find("selftest FAILED: "), std::string::npos) << report.summary();
  }
}

TEST(Selftest, NamesTheRankAndTheHost) {
  const int bad = session().size() - 1;
  const Report report = run(
      session(),
      {.device = c10::kCPU, .only = "steps/ddp/full, fp64, plain$", .tamper = [&](const Row&, std::string_view, at::Tensor& v) {
         if (session().rank() == bad) v.add_(1.0);
       }});
  ASSERT_EQ(report.rows.size(), 1U);
  const Row& row = report.rows[0];
  ASSERT_EQ(row.verdict, Verdict::failed);
  ASSERT_EQ(row.failures.size(), 1U);
  EXPECT_EQ(row.failures[0].rank, bad);
  EXPECT_EQ(row.failures[0].host, session().hostname());
  const std::string text = to_text(row);
  for (const std::string& part : {fmt::format("rank {} ({})", bad, session().hostname()), std::string("means: a run"),
                                  std::string("next:"), std::string("the loss of step 1 is off by")})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  const nlohmann::json json = to_json(report);
  EXPECT_FALSE(json["passed"].get<bool>());
  EXPECT_EQ(json["checks"][0]["ranks"][0]["rank"].get<int>(), bad);
  EXPECT_EQ(json["checks"][0]["verdict"].get<std::string>(), "FAILED");
}

constexpr Subject kSubject{"here", "this", "nothing", "go on"};

TEST(Checks, ThatThrowFailAndTheNextGoesOn) {
  Runner runner(session(), {.device = c10::kCPU, .only = ""});
  runner.check(kSubject, "throws", [](Outcome&) { fail("a stone in the way"); });
  runner.check(kSubject, "throws on one", [](Outcome&) { require(comm::Session::current().rank() != 0, "only here"); });
  runner.check(kSubject, "skips", [](Outcome&) { Outcome::skip("no such thing here"); });
  runner.check(kSubject, "is fine", [](Outcome& out) { out.compare("one", 1.0, 1.0, 1e-9); });
  const Report report = runner.finish();
  ASSERT_EQ(report.rows.size(), 4U);
  EXPECT_EQ(report.rows[0].verdict, Verdict::failed);
  EXPECT_NE(report.rows[0].failures[0].text.find("a stone in the way"), std::string::npos);
  ASSERT_EQ(report.rows[1].failures.size(), 1U);
  EXPECT_EQ(report.rows[1].failures[0].rank, 0);
  EXPECT_EQ(report.rows[2].verdict, Verdict::skipped);
  EXPECT_EQ(report.rows[2].why, "no such thing here");
  EXPECT_EQ(report.rows[3].verdict, Verdict::ok);
  EXPECT_EQ(report.count(Verdict::failed), 2);
}

TEST(Checks, SeeOneWrongElementAmongAMillion) {
  const at::Tensor want = at::ones({1000, 1000}, at::kDouble), off = want.clone();
  off[999][999].fill_(1.05);
  const auto failed = [&](const at::Tensor& got) {
    Outcome out({});
    out.compare("values", got, want, 2e-3);
    return !out.text().empty();
  };
  EXPECT_FALSE(failed(want));
  EXPECT_FALSE(failed(want * 1.001));
  EXPECT_TRUE(failed(off));
  EXPECT_TRUE(failed(want * 1.01));
  EXPECT_TRUE(failed(want.narrow(0, 0, 999)));
  EXPECT_TRUE(failed(want.clone().fill_(std::numeric_limits<double>::infinity())));
}

TEST(Selftest, RefusesPatternsThatFitNothing) {
  EXPECT_THROW(run(session(), {.device = c10::kCPU, .only = "no such check"}), ConfigError);
  EXPECT_THROW(run(session(), {.device = c10::kCPU, .only = "("}), ConfigError);
}

/// A network that changes the last byte of the data that one rank receives.
class Damaged final : public comm::Communicator {
 public:
  Damaged(comm::Communicator& inner, comm::OpKind kind)
      : Communicator("damaged", inner.rank(), inner.size()), inner_(inner), kind_(kind) {}
  std::string_view backend() const override { return inner_.backend(); }

 private:
  void damage(comm::OpKind kind, void* data, std::size_t elements, DType dtype) const {
    if (kind == kind_ && rank() == size() - 1 && elements > 0) static_cast<char*>(data)[elements * size_of(dtype) - 1] ^= 0x40;
  }
  static std::size_t total(Counts counts) {
    std::size_t sum = 0;
    for (const std::size_t c : counts) sum += c;
    return sum;
  }
  void do_barrier() override { inner_.barrier(); }
  comm::Work do_broadcast(void* data, std::size_t count, DType dtype, int root, Mode) override {
    inner_.broadcast(data, count, dtype, root);
    damage(comm::OpKind::broadcast, data, count, dtype);
    return {};
  }
  comm::Work do_all_reduce(void* data, std::size_t count, DType dtype, comm::ReduceOp op, Mode) override {
    inner_.all_reduce(data, count, dtype, op);
    damage(comm::OpKind::all_reduce, data, count, dtype);
    return {};
  }
  comm::Work do_reduce_scatter(const void* send, void* recv, Counts counts, DType dtype, comm::ReduceOp op) override {
    inner_.reduce_scatter_v(send, recv, counts, dtype, op);
    damage(comm::OpKind::reduce_scatter, recv, counts[static_cast<std::size_t>(rank())], dtype);
    return {};
  }
  comm::Work do_all_gather(const void* send, void* recv, Counts counts, DType dtype, Mode) override {
    inner_.all_gather_v(send, recv, counts, dtype);
    damage(comm::OpKind::all_gather, recv, total(counts), dtype);
    return {};
  }
  comm::Work do_all_to_all(const void* send, Counts send_counts, void* recv, Counts recv_counts, DType dtype) override {
    inner_.all_to_all_v(send, send_counts, recv, recv_counts, dtype);
    damage(comm::OpKind::all_to_all, recv, total(recv_counts), dtype);
    return {};
  }
  comm::Work do_send(const void* data, std::size_t count, DType dtype, int peer, int tag) override {
    return inner_.start_send(data, count, dtype, peer, tag);
  }
  comm::Work do_recv(void* data, std::size_t count, DType dtype, int peer, int tag) override {
    inner_.recv(data, count, dtype, peer, tag);
    damage(comm::OpKind::recv, data, count, dtype);
    return {};
  }
  std::unique_ptr<comm::Communicator> do_split(int color, int key, std::string name) override {
    return inner_.split(color, key, std::move(name));
  }

  comm::Communicator& inner_;
  comm::OpKind kind_;
};

TEST(Collectives, ThatChangeAByteAreFound) {
  using comm::OpKind;
  const auto copy = session().world().split(0, session().rank(), "copy");
  for (const OpKind kind :
       {OpKind::broadcast, OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather, OpKind::all_to_all, OpKind::recv}) {
    if (kind == OpKind::recv && session().size() == 1) continue;
    Damaged damaged(*copy, kind);
    Runner runner(session(), {.device = c10::kCPU, .only = "1009"});
    check_group(runner, damaged, c10::kCPU, "damaged");
    for (const Row& row : runner.finish().rows) {
      if (row.setting.find("uneven") != std::string::npos) continue;  // the last rank may receive nothing that could be damaged
      ASSERT_EQ(row.verdict, Verdict::failed) << row.name();
      ASSERT_EQ(row.failures.size(), 1U);
      EXPECT_EQ(row.failures[0].rank, session().size() - 1);
      EXPECT_NE(row.failures[0].text.find(name_of(kind)), std::string::npos) << row.failures[0].text;
    }
  }
}

}  // namespace
}  // namespace qft::selftest
