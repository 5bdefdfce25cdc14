// Copies between host and device, pinned memory, and waits.
#include <vector>

#include "fixture.h"
#include <c10/util/Exception.h>

namespace qft::sim {
namespace {

TEST_F(Sim, PinnedMemoryIsReadWhenTheCopyRuns) {
  at::Tensor host = pinned({4}).fill_(1);
  EXPECT_TRUE(host.is_pinned());
  EXPECT_FALSE(at::ones({4}).is_pinned());
  const at::Tensor late = host.to(device(), /*non_blocking=*/true);
  const at::Tensor pageable = at::ones({4}), staged = pageable.to(device(), /*non_blocking=*/true);
  EXPECT_FALSE(host_touch(host.data_ptr(), 16, true));
  expect_error({"the host writes 16 bytes of pinned memory", "copy to the device"});
  host.fill_(2);
  pageable.fill_(2);
  EXPECT_EQ(late.sum().item<float>(), 8);
  EXPECT_EQ(staged.sum().item<float>(), 4);
  EXPECT_TRUE(host_touch(host.data_ptr(), 16, true));
}

TEST_F(Sim, CopiesToTheHost) {
  const at::Tensor x = at::full({4}, 3.0, on_device());
  const at::Tensor host = pinned({4}).fill_(0), pageable = at::zeros({4});
  host.copy_(x, /*non_blocking=*/true);
  EXPECT_EQ(host[0].item<float>(), 0) << "nobody waited";
  EXPECT_FALSE(host_touch(host.data_ptr(), 16, false));
  expect_error({"the host reads 16 bytes of pinned memory", "writes"});
  pageable.copy_(x, /*non_blocking=*/true);
  EXPECT_EQ(pageable[0].item<float>(), 3);
  EXPECT_EQ(host[0].item<float>(), 3) << "it was queued before";
  EXPECT_TRUE(at::equal(x.cpu(), pageable));
}

TEST_F(Sim, PinnedMemoryWaitsForItsCopies) {
  at::Tensor host = pinned({5000}).fill_(1);
  const void* const data = host.data_ptr();
  const at::Tensor x = host.to(device(), true);
  host.reset();
  const at::Tensor next = pinned({5000}).fill_(2);
  EXPECT_NE(next.data_ptr(), data);
  EXPECT_EQ(x.sum().item<float>(), 5000);
  EXPECT_EQ(pinned({5000}).data_ptr(), data) << "it is free now";
}

TEST_F(Sim, CopiesOfBytes) {
  auto* const host = static_cast<float*>(backend().allocate_pinned(16));
  ASSERT_NE(host, nullptr);
  const at::Tensor x = at::zeros({4}, on_device());
  float plain[4] = {1, 2, 3, 4};
  backend().copy_bytes(const_cast<void*>(x.storage().data()), plain, 16, main_stream());
  plain[0] = 100;
  host[0] = 0;
  backend().copy_bytes(host, x.storage().data(), 16, main_stream());
  EXPECT_EQ(host[0], 0);
  {
    const c10::StreamGuard other(new_stream());
    EXPECT_THROW(backend().copy_bytes(const_cast<void*>(x.storage().data()), host, 16,
                                      c10::impl::getDeviceGuardImpl(device().type())->getStream(device())),
                 c10::Error);
    expect_error({"copy_bytes", "no order between them"});
  }
  main_stream().synchronize();
  EXPECT_EQ(host[0], 1);
  backend().copy_bytes(const_cast<void*>(x.storage().data()), host, 16, main_stream());
  backend().free_pinned(host);
  expect_error({"a free writes", "pinned memory that 'copy_bytes'"});
  backend().copy_bytes(plain, x.storage().data(), 16, main_stream());
  EXPECT_EQ(plain[3], 4) << "a copy to pageable memory waits";
}

TEST_F(Sim, WaitsCanBeRefused) {
  const at::Tensor x = at::ones({4}, on_device());
  at::Tensor host = pinned({4});
  backend().refuse_waits(true);
  const auto refused = [](const auto& wait) {
    try {
      wait();
    } catch (const c10::Error& e) {
      return backend().is_refusal(e.what());
    }
    return false;
  };
  EXPECT_TRUE(refused([&] { x.sum().item(); }));
  EXPECT_TRUE(refused([&] { x.cpu(); }));
  EXPECT_TRUE(refused([&] { at::ones({2}).to(device()); }));
  EXPECT_TRUE(refused([&] { main_stream().synchronize(); }));
  EXPECT_TRUE(refused([&] { guard().synchronizeDevice(0); }));
  float plain[4];
  EXPECT_TRUE(refused([&] { backend().copy_bytes(plain, x.storage().data(), 16, main_stream()); }));
  EXPECT_TRUE(refused([&] { at::equal(x, x); }));
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(main_stream());
  EXPECT_TRUE(refused([&] { event.synchronize(); }));
  EXPECT_FALSE(refused([&] { event.query(); }));
  EXPECT_FALSE(refused([&] { host.copy_(x, true); }));
  EXPECT_FALSE(refused([&] { at::Tensor(x).add_(1); }));
  backend().refuse_waits(false);
  EXPECT_EQ(x.sum().item<float>(), 8);
}

}  // namespace
}  // namespace qft::sim
