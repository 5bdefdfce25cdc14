// Compares attention by LibTorch's device kernels with explicit matrices in fp64 on the CPU.
#include "qft/ops/attention.h"

#include "qft/core/error.h"
#include "qft/ops/workspace.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "fixture.h"
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/record_function.h>

namespace qft::sim {
namespace {

using ops::AttentionKernel;

struct Shape {
  std::int64_t heads, kv_heads, head_dim;
  std::vector<std::int32_t> lengths;
  std::int64_t window = 0;

  std::int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}); }
  std::string text() const {
    return c10::str(heads, "/", kv_heads, " heads of ", head_dim, ", window ", window, ", ", lengths.size(), " sequences");
  }
};

at::Tensor random(c10::IntArrayRef size, double start) {
  const std::int64_t n = std::accumulate(size.begin(), size.end(), std::int64_t{1}, std::multiplies<>());
  const at::Tensor x = at::arange(n, at::kDouble).add_(start);
  return x.mul(0.7310).sin_().add_(x.mul(12.9898).sin_()).view(size);
}

/// Operands and results of a call on one device.
struct Call {
  Call(const Shape& shape, c10::Device device, at::ScalarType type, AttentionKernel kernel)
      : shape(shape), kernel(kernel), workspace(device) {
    const auto options = at::TensorOptions(device).dtype(type);
    std::vector<std::int32_t> bounds = {0};
    for (const std::int32_t n : shape.lengths) bounds.push_back(bounds.back() + n);
    sequences = ops::PackedSequences::build(bounds, device);
    options_ = {1 / std::sqrt(static_cast<double>(shape.head_dim)), shape.window};
    const std::int64_t tokens = shape.tokens(), columns = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
    qkv = at::empty({tokens, columns}, options);
    gout = at::empty({tokens, shape.heads * shape.head_dim}, options);
    out = at::empty_like(gout);
    grads = at::empty_like(qkv);
    lse = at::empty({shape.heads, tokens}, options.dtype(type == at::kDouble ? at::kDouble : at::kFloat));
  }
  ops::QkvViews views(const at::Tensor& rows) const { return ops::split_qkv(rows, shape.heads, shape.kv_heads, shape.head_dim); }
  void forward() { ops::attention_forward(views(qkv), sequences, options_, out, lse, workspace, kernel); }
  void backward() {
    ops::attention_backward({.gout = gout, .in = views(qkv), .out = out, .lse = lse, .grads = views(grads)}, sequences, options_,
                            workspace, kernel);
  }

  Shape shape;
  AttentionKernel kernel;
  ops::Workspace workspace;
  ops::PackedSequences sequences;
  ops::AttentionOptions options_;
  at::Tensor qkv, gout, out, lse, grads;
};

class DeviceAttention : public Sim {
 protected:
  static void expect_close(const at::Tensor& got, const at::Tensor& want, double limit, const char* what) {
    const double error = (got.cpu().to(at::kDouble) - want).norm().item<double>(), size = want.norm().item<double>();
    EXPECT_LE(error, limit * size + 1e-12) << what;
  }

  static void expect_same(const Shape& shape, at::ScalarType type) {
    SCOPED_TRACE(c10::str(shape.text(), ", ", type));
    Call here(shape, c10::kCPU, at::kDouble, AttentionKernel::reference), there(shape, device(), type, AttentionKernel::sdpa);
    const at::Tensor qkv = random(here.qkv.sizes(), 0).to(type), gout = random(here.gout.sizes(), 5).to(type);
    here.qkv.copy_(qkv), here.gout.copy_(gout), there.qkv.copy_(qkv), there.gout.copy_(gout);
    here.forward(), here.backward(), there.forward(), there.backward();
    const double limit = type == at::kFloat ? 2e-6 : type == at::kHalf ? 2e-3 : 1.5e-2;
    expect_close(there.out, here.out, limit, "out");
    expect_close(there.lse, here.lse, 1e-6, "lse");
    const auto got = there.views(there.grads), want = here.views(here.grads);
    expect_close(there.grads, here.grads, limit, "gradients");
    expect_close(got.k, want.k, 2 * limit, "k's gradient");
    expect_close(got.v, want.v, limit, "v's gradient");
  }

  static std::int64_t queued_by(const std::function<void()>& work) {
    const std::int64_t before = counters().queued;
    work();
    return counters().queued - before;
  }
};

constexpr at::ScalarType kTypes[] = {at::kBFloat16, at::kHalf, at::kFloat};

TEST_F(DeviceAttention, IsThatOfMatrices) {
  for (const at::ScalarType type : kTypes)
    for (const Shape& shape : {Shape{6, 2, 64, {1, 40, 33}}, Shape{4, 4, 128, {20, 0, 9}}, Shape{2, 1, 80, {33, 70}, 30},
                               Shape{3, 1, 8, {45}, 1}, Shape{4, 2, 16, {20, 0, 9}, 1000}})
      expect_same(shape, type);
}

// Not a multiple of 16 bytes: LibTorch's kernels refuse such heads.
TEST_F(DeviceAttention, TakesHeadsOfAnySize) {
  for (const at::ScalarType type : kTypes)
    for (const std::int64_t head_dim : {100, 36, 20, 18})
      for (const std::int64_t window : {0, 11}) {
        expect_same({4, 2, head_dim, {17, 1, 30}, window}, type);
        expect_same({2, 2, head_dim, {23}, window}, type);
      }
}

TEST_F(DeviceAttention, TakesHeadsTooWideForFlash) {
  for (const at::ScalarType type : kTypes) expect_same({4, 2, 260, {17, 30}}, type);
}

TEST_F(DeviceAttention, TakesSequencesOfOneTokenAndEmptyOnes) {
  for (const at::ScalarType type : kTypes) {
    expect_same({4, 2, 16, {1, 0, 1}}, type);
    Call none({4, 2, 16, {0}}, device(), type, AttentionKernel::automatic);
    none.forward(), none.backward();
  }
}

TEST_F(DeviceAttention, QueuesNoMoreForMoreSequences) {
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const auto launches = [&](std::int64_t sequences) {
      Call call({4, 2, 16, std::vector<std::int32_t>(static_cast<std::size_t>(sequences), 3)}, device(), type,
                AttentionKernel::automatic);
      call.qkv.zero_(), call.gout.zero_();
      return std::pair(queued_by([&] { call.forward(); }), queued_by([&] { call.backward(); }));
    };
    const auto few = launches(2);
    EXPECT_EQ(launches(100), few) << type;
    EXPECT_LE(few.first, type == at::kFloat ? 14 : 3);
    EXPECT_LE(few.second, type == at::kFloat ? 20 : 4);
  }
}

TEST_F(DeviceAttention, AsksOnceWhichKernelThereIs) {
  static std::int64_t asked;
  asked = 0;
  const auto counted = [](const at::RecordFunction& f) -> std::unique_ptr<at::ObserverContext> {
    if (std::string(f.name()) == "aten::_fused_sdp_choice") ++asked;
    return nullptr;
  };
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(counted));
  for (int layer = 0; layer < 3; ++layer) {
    Call call({6, 3, 56, {7}}, device(), at::kBFloat16, AttentionKernel::automatic);
    call.qkv.zero_(), call.gout.zero_();
    call.forward(), call.backward();
    EXPECT_TRUE(ops::attention_can_be_captured(device(), at::kBFloat16, 56));
  }
  at::removeCallback(handle);
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(ops::attention_can_be_captured(device(), at::kFloat, 56));
}

// The planned bytes are at least the allocated bytes, which are at least `share` of the planned ones.
void expect_planned(const Shape& shape, c10::Device device, at::ScalarType type, bool backward, double share) {
  SCOPED_TRACE(c10::str(shape.text(), ", ", type, backward ? " backward" : " forward"));
  auto& memory = *c10::getDeviceAllocator(c10::DeviceType::PrivateUse1);
  const auto& guard = *c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1);
  Call call(shape, device, type, AttentionKernel::automatic);
  call.qkv.zero_(), call.gout.zero_();
  call.forward();
  guard.synchronizeDevice(0);
  memory.resetPeakStats(0);
  const std::int64_t before = peak_use();
  backward ? call.backward() : call.forward();
  guard.synchronizeDevice(0);
  const auto taken = static_cast<double>(peak_use() - before);
  const auto sequences = static_cast<std::int64_t>(shape.lengths.size());
  const std::int64_t longest = *std::max_element(shape.lengths.begin(), shape.lengths.end());
  const auto planned = static_cast<double>(ops::attention_scratch_bytes(
      {.tokens = shape.tokens(), .sequences = sequences, .longest = longest, .padded = sequences * longest}, shape.heads,
      shape.kv_heads, shape.head_dim, type, backward, ops::attention_path(device, type, shape.head_dim)));
  EXPECT_LE(taken, planned);
  EXPECT_GE(taken, share * planned);
}

TEST_F(DeviceAttention, AllocatesWhatIsPlanned) {
  const std::vector<std::int32_t> half(2, 256), uneven = {100, 300, 112};
  for (const Shape& shape : {Shape{8, 2, 64, half}, Shape{4, 4, 128, half}, Shape{8, 2, 100, uneven}, Shape{4, 2, 320, half}})
    for (const at::ScalarType type : kTypes)
      for (const bool backward : {false, true}) expect_planned(shape, device(), type, backward, 0.95);
}

// Short sequences next to a long one: the kernel pads each of them.
TEST_F(DeviceAttention, OfAChipWithoutFlashAllocatesWhatIsPlanned) {
  if (std::getenv("QFT_SIM_BF16") == nullptr) GTEST_SKIP() << "QFT_SIM_BF16=0 is such a chip";
  ASSERT_EQ(ops::attention_path(device(), at::kHalf, 64), ops::AttentionPath::efficient);
  for (const std::int64_t head_dim : {64, 100, 128, 256})
    for (const bool backward : {false, true})
      expect_planned({4, 2, head_dim, {16, 16, 200, 16, 16, 300, 16, 16}}, device(), at::kHalf, backward, 0.95);
}

TEST_F(DeviceAttention, AllocatesWhatIsPlannedForDeterministicSums) {
  at::globalContext().setDeterministicAlgorithms(true, false);
  expect_planned({4, 2, 64, {256, 100}}, device(), at::kBFloat16, true, 0.75);  // planned for the chip with the most processors
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_F(DeviceAttention, RefusesByNameWhatLibTorchHasNot) {
  Call call({4, 2, 16, {5}}, device(), at::kDouble, AttentionKernel::sdpa);
  try {
    call.forward();
    FAIL() << "fp64";
  } catch (const Error& e) {
    for (const char* word : {"Double", "16", "automatic"})
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
  }
}

// The operations refuse the same arguments as CUDA's, so that a test fails here if it would fail on a GPU.
TEST_F(DeviceAttention, OperationsRefuseWhatThoseOfCudaRefuse) {
  const auto bounds = at::tensor({0, 4}, at::kInt).to(device());
  const auto flash = [&](const at::Tensor& q, const at::Tensor& k) {
    at::_flash_attention_forward(q, k, k, bounds, bounds, 4, 4, 0.0, true, false);
  };
  const auto efficient = [&](const at::Tensor& q, const at::Tensor& k) {
    at::_efficient_attention_forward(q, k, k, std::nullopt, bounds, bounds, 4, 4, 0.0, 1, true);
  };
  const auto of = [](at::ScalarType type, c10::IntArrayRef size) { return at::zeros(size, on_device(type)); };
  EXPECT_NO_THROW(flash(of(at::kHalf, {4, 4, 16}), of(at::kHalf, {4, 2, 16})));
  EXPECT_THROW(flash(of(at::kFloat, {4, 2, 16}), of(at::kFloat, {4, 2, 16})), c10::Error);
  EXPECT_THROW(flash(of(at::kHalf, {4, 2, 20}), of(at::kHalf, {4, 2, 20})), c10::Error);
  EXPECT_THROW(flash(of(at::kHalf, {4, 2, 264}), of(at::kHalf, {4, 2, 264})), c10::Error);
  EXPECT_THROW(flash(of(at::kHalf, {4, 3, 16}), of(at::kHalf, {4, 2, 16})), c10::Error);
  EXPECT_NO_THROW(efficient(of(at::kFloat, {1, 4, 2, 20}), of(at::kFloat, {1, 4, 2, 20})));
  EXPECT_THROW(efficient(of(at::kFloat, {1, 4, 2, 18}), of(at::kFloat, {1, 4, 2, 18})), c10::Error);
  EXPECT_THROW(efficient(of(at::kFloat, {1, 4, 4, 16}), of(at::kFloat, {1, 4, 2, 16})), c10::Error);
  EXPECT_THROW(efficient(of(at::kDouble, {1, 4, 2, 16}), of(at::kDouble, {1, 4, 2, 16})), c10::Error);
}

}  // namespace
}  // namespace qft::sim
