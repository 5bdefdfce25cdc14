// Operations give the CPU's results bit for bit.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fixture.h"
#include <c10/util/Exception.h>

namespace qft::sim {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Returns values that are the same at every call, of any type.
at::Tensor values(c10::IntArrayRef size, c10::ScalarType type = at::kFloat) {
  at::Tensor x = at::empty(size, at::kDouble);
  double* const data = x.data_ptr<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i) data[i] = static_cast<double>((i * 7919 + 13) % 101) / 17.0 - 2.5;
  return at::isFloatingType(type) ? x.to(type) : x.abs().mul_(3).to(type);
}

at::Tensor same_strides_on_device(const at::Tensor& x, const c10::TensorOptions& options) {
  at::Tensor y = at::empty_strided(x.sizes(), x.strides(), options.dtype(x.scalar_type()));
  return y.copy_(x);
}

/// Runs `work`, which may change its arguments, on the CPU and on the device; results and arguments must be equal bit for bit.
void expect_as_cpu(const std::string& name, const Tensors& arguments, const c10::TensorOptions& device,
                   const std::function<Tensors(const Tensors&)>& work) {
  SCOPED_TRACE(name);
  Tensors host, there;
  for (const at::Tensor& a : arguments) {
    host.push_back(a.clone());
    there.push_back(same_strides_on_device(a, device));
  }
  Tensors expected = work(host), got;
  try {
    got = work(there);
    expected.insert(expected.end(), host.begin(), host.end());
    got.insert(got.end(), there.begin(), there.end());
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(got[i].is_privateuseone()) << "result " << i;
      const at::Tensor values = got[i].cpu();
      ASSERT_EQ(values.sizes(), expected[i].sizes());
      ASSERT_EQ(values.scalar_type(), expected[i].scalar_type());
      EXPECT_TRUE(at::equal(values.isnan(), expected[i].isnan()) && at::equal(values.nan_to_num(), expected[i].nan_to_num()))
          << "result " << i << ": " << values << "\nexpected: " << expected[i];
    }
  } catch (const c10::Error& e) {
    ADD_FAILURE() << e.what_without_backtrace();
  }
}

TEST_F(Sim, ElementwiseOperations) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto check = [&](const char* name, const std::function<Tensors(const Tensors&)>& work) {
      expect_as_cpu(std::string(name) + " " + c10::toString(type),
                    {values({5, 7}, type), values({7}, type), values({5, 7}, type).t().contiguous().t()}, on_device(), work);
    };
    check("arithmetic",
          [](const Tensors& x) { return Tensors{x[0] + x[1], x[0] - x[2], x[0] * x[2], x[0] / (x[1] * x[1] + 1), -x[2]}; });
    check("scalars", [](const Tensors& x) { return Tensors{x[0] + 2.5, 1 - x[2], x[0] * 3, x[2] / 7, x[0].add(x[2], 0.25)}; });
    check("host scalars",
          [](const Tensors& x) { return Tensors{x[0] * at::scalar_tensor(0.3, at::kDouble), at::scalar_tensor(2.0F) - x[2]}; });
    check("functions", [](const Tensors& x) {
      return Tensors{x[0].exp(),
                     x[0].square().add(1).log(),
                     x[2].sin(),
                     x[2].cos(),
                     x[0].square().add(1).rsqrt(),
                     x[0].sigmoid(),
                     x[0].tanh(),
                     x[0].abs().sqrt(),
                     x[0].pow(2),
                     x[2].sign(),
                     x[0].clamp(-1, 1),
                     x[0].reciprocal(),
                     at::silu(x[2])};
    });
    check("in place", [](const Tensors& x) {
      at::Tensor(x[0]).add_(x[1]).mul_(2).sub_(x[2]).exp_();
      at::Tensor(x[2]).div_(3).neg_().clamp_(-1, 1).sign_();
      x[0].narrow(1, 2, 3).mul_(x[2].narrow(1, 0, 3));
      x[1].narrow(0, 1, 4).fill_(8).narrow(0, 0, 2).zero_();
      return Tensors{};
    });
    check("on itself", [](const Tensors& x) {
      at::Tensor(x[0]).add_(x[0]).mul_(x[0]);
      return Tensors{x[2] * x[2]};
    });
    check("out", [](const Tensors& x) {
      at::Tensor y = at::empty({0}, x[0].options()), z = at::empty({7, 5}, x[0].options()).t();
      at::add_out(y, x[0], x[2]);
      at::mul_out(z, x[0], x[1]);
      at::Tensor same = x[2];
      at::sub_out(same, x[0], same);
      return Tensors{y, z};
    });
    check("comparisons", [](const Tensors& x) {
      return Tensors{x[0] > x[2],
                     x[0].le(0),
                     x[0] == x[2],
                     at::where(x[0] > 0, x[0], x[2]),
                     x[0].isfinite(),
                     x[0].maximum(x[2]),
                     x[0].masked_fill(x[2] > 0, -1.0),
                     (x[0] > 0).logical_not(),
                     (x[0] > 0).any(),
                     (x[2] > 0).logical_or(x[0] > 0).all()};
    });
  }
}

TEST_F(Sim, WholeNumbersAndTruthValues) {
  for (const auto type : {at::kInt, at::kLong})
    expect_as_cpu(c10::toString(type), {values({4, 3}, type), values({4, 3}, type).add(1)}, on_device(), [](const Tensors& x) {
      return Tensors{x[0] + x[1],
                     x[0] * 2,
                     x[0].floor_divide(x[1]),
                     x[0].remainder(x[1]),
                     x[0].sum(),
                     x[0].cumsum(0),
                     x[0] > x[1],
                     x[0].to(at::kFloat),
                     x[1].max(),
                     x[0].argmax(1),
                     x[0].bitwise_and(x[1]),
                     x[0].ne(x[1]).sum()};
    });
}

TEST_F(Sim, Reductions) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    expect_as_cpu(c10::toString(type), {values({6, 5, 4}, type)}, on_device(), [](const Tensors& x) {
      const auto [most, where] = x[0].max(1);
      return Tensors{x[0].sum(),
                     x[0].sum(1),
                     x[0].mean(-1, true),
                     x[0].sum(at::IntArrayRef({0, 2})),
                     x[0].transpose(0, 1).sum(0),
                     x[0].sum(0, false, at::kDouble),
                     x[0].amax(0),
                     most,
                     where,
                     at::logsumexp(x[0], -1),
                     at::log_softmax(x[0], -1, at::kDouble),
                     at::log_softmax(x[0], -1, at::kFloat),
                     at::softmax(x[0], -1),
                     at::linalg_vector_norm(x[0], 2, at::OptionalIntArrayRef(), false, at::kDouble),
                     x[0].square().mean(-1, true),
                     x[0].argmax(-1),
                     x[0].cumsum(1)};
    });
}

TEST_F(Sim, Products) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    expect_as_cpu(
        c10::toString(type),
        {values({6, 5}, type), values({5, 4}, type), values({6, 4}, type), values({4}, type), values({2, 3, 6, 5}, type)},
        on_device(), [](const Tensors& x) {
          at::Tensor out = at::empty({6, 4}, x[0].options()), wide = at::zeros({6, 10}, x[0].options()),
                     part = wide.narrow(1, 3, 4);
          at::mm_out(out, x[0], x[1]);
          at::addmm_out(part, x[2], x[0], x[1], 1, 0.5);
          return Tensors{at::mm(x[0], x[1]),
                         x[0].t().mm(x[2]),
                         at::addmm(x[3], x[0], x[1]),
                         at::matmul(x[4], x[1]),
                         x[0].matmul(x[1]).matmul(x[3]),
                         at::matmul(x[4], x[4].transpose(-2, -1)),
                         out,
                         wide,
                         at::dot(x[3], x[3])};
        });
}

TEST_F(Sim, ViewsShareMemory) {
  expect_as_cpu("views", {values({4, 6})}, on_device(), [](const Tensors& x) {
    const at::Tensor v = x[0].view({2, 2, 6}), first = x[0].select(0, 1), every_other = x[0].slice(1, 0, 6, 2);
    every_other.mul_(2);
    first.unsqueeze(0).expand({3, 6}).sum(0);
    x[0].as_strided({2, 2}, {6, 1}, 3).fill_(9);
    x[0].diagonal().zero_();
    return Tensors{v.permute({2, 0, 1}).reshape({6, 4}),
                   x[0].t().contiguous(),
                   x[0].flatten(),
                   x[0].unflatten(1, {2, 3}),
                   x[0].split(2, 1)[1].clone(),
                   x[0].unfold(1, 2, 3).clone(),
                   x[0].transpose(0, 1).squeeze(),
                   x[0].unbind(0)[2].clone(),
                   x[0].detach().alias(),
                   x[0].view(at::kInt),
                   x[0].chunk(2)[1].clone(),
                   x[0].expand({2, 4, 6}).contiguous(),
                   x[0].view_as(x[0].reshape({4, 6}))};
  });
}

TEST_F(Sim, IndicesAndLists) {
  const at::Tensor rows = at::tensor({3, 0, 3, 1}, at::kLong);
  expect_as_cpu("indices", {values({5, 4}), rows, values({4, 4})}, on_device(), [](const Tensors& x) {
    at::Tensor sums = at::zeros({5, 4}, x[0].options()), out = at::empty({4, 4}, x[0].options());
    sums.index_add_(0, x[1], x[2]);
    at::index_select_out(out, x[0], 0, x[1]);
    at::Tensor scattered = at::zeros({4, 4}, x[0].options());
    scattered.scatter_add_(1, x[1].expand({4, 4}), x[2]);
    at::Tensor put = x[0].clone();
    put.index_put_({x[1].narrow(0, 0, 2)}, x[2].narrow(0, 0, 2));
    return Tensors{x[0].index_select(0, x[1]),
                   x[2].gather(1, x[1].unsqueeze(1)),
                   x[0].index({x[1]}),
                   at::embedding(x[0], x[1]),
                   sums,
                   out,
                   scattered,
                   put,
                   x[2].triu(),
                   x[2].flip({0})};
  });
  expect_as_cpu("lists", {values({2, 3}), values({2, 3}), values({1, 3})}, on_device(), [](const Tensors& x) {
    at::Tensor out = at::empty({0}, x[0].options());
    at::cat_out(out, {x[0], x[2]});
    return Tensors{at::cat({x[0], x[1].narrow(1, 0, 2)}, 1), at::stack({x[0], x[1]}), at::stack({x[0], x[1]}, 2), out,
                   at::cat({x[0], x[1], x[2]}, 0)};
  });
}

TEST_F(Sim, OperationsOfSequences) {
  const at::Tensor counts = at::tensor({2, 0, 3}, at::kLong);
  expect_as_cpu("sequences", {values({5}, at::kDouble), counts, values({3}, at::kDouble)}, on_device(), [](const Tensors& x) {
    return Tensors{at::segment_reduce(x[0], "sum", x[1], {}, {}, 0, /*unsafe=*/true), at::repeat_interleave(x[2], x[1], 0, 5),
                   at::log_sigmoid(x[0])};
  });
}

TEST_F(Sim, NewTensors) {
  expect_as_cpu("factories", {values({3})}, on_device(), [](const Tensors& x) {
    const auto o = x[0].options();
    at::Tensor range = at::empty({0}, o.dtype(at::kLong));
    at::arange_out(range, 2, 9, 1);
    return Tensors{at::zeros({2, 2}, o),
                   at::ones({3}, o.dtype(at::kInt)),
                   at::full({2}, 7.5, o),
                   at::full({}, -1, o),
                   at::arange(5, o.dtype(at::kLong)),
                   at::arange(1, 4, 0.5, o),
                   at::zeros_like(x[0]),
                   at::full_like(x[0], 2),
                   at::ones_like(x[0]),
                   at::scalar_tensor(3, o),
                   range,
                   at::eye(3, o),
                   at::linspace(0, 1, 5, o),
                   at::empty_like(x[0]).fill_(1),
                   x[0].new_zeros({2})};
  });
}

TEST_F(Sim, CopiesBetweenTypesAndLayouts) {
  for (const auto from : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kInt, at::kLong, at::kBool})
    for (const auto to : {at::kDouble, at::kFloat, at::kBFloat16, at::kLong}) {
      const at::Tensor host = values({4, 6}, from);
      EXPECT_TRUE(at::equal(host.to(device()).to(to).cpu(), host.to(to)));
      EXPECT_TRUE(at::equal(host.to(device(), to).cpu(), host.to(to)));
      const at::Tensor strided = at::zeros({6, 4}, on_device(to)).t();
      strided.copy_(host);
      EXPECT_TRUE(at::equal(strided.cpu(), host.to(to))) << "into columns";
      const at::Tensor columns = at::zeros({6, 4}, to).t();
      columns.copy_(host.to(device()));
      EXPECT_TRUE(at::equal(columns, host.to(to))) << "into columns of the host";
      const at::Tensor rows = at::empty({3, 4, 6}, at::TensorOptions(to).pinned_memory(true));
      rows.copy_(host.to(device()), true);
      main_stream().synchronize();
      EXPECT_TRUE(at::equal(rows[2], host.to(to))) << "broadcast, to pinned memory";
    }
  EXPECT_TRUE(at::equal(values({4, 6}).t().to(device()).cpu(), values({4, 6}).t()));
}

TEST_F(Sim, ValuesForTheHost) {
  const at::Tensor x = values({4}, at::kDouble).to(device());
  EXPECT_EQ(x[2].item<double>(), values({4}, at::kDouble)[2].item<double>());
  EXPECT_TRUE(at::equal(x, x.clone()));
  EXPECT_FALSE(at::equal(x, x + 1));
  EXPECT_TRUE(at::allclose(x, x + 1e-12));
  EXPECT_TRUE((x > -10).all().item<bool>());
}

TEST_F(Sim, StoragesAreResizedAndGiven) {
  at::Tensor x = at::ones({4}, on_device());
  x.resize_({2, 3});
  EXPECT_EQ(x.flatten().narrow(0, 0, 4).sum().item<float>(), 4);
  at::Tensor y = at::empty({0}, on_device());
  y.set_(x.storage(), 1, {3}, {1});
  EXPECT_EQ(y.sum().item<float>(), 3);
  y.set_(x);
  EXPECT_TRUE(y.storage().is_alias_of(x.storage()));
  const at::Tensor over = at::from_blob(const_cast<void*>(x.storage().data()), {2}, on_device());
  EXPECT_EQ(over.sum().item<float>(), 2);
  x.storage().unsafeGetStorageImpl()->reset();
  x.storage().unsafeGetStorageImpl()->set_nbytes(0);
  EXPECT_THROW(x.add(1), c10::Error) << "a stale view";
}

TEST_F(Sim, OptimizersOfLists) {
  expect_as_cpu("fused AdamW", {values({9}), values({9}).mul(0.1), values({9}).mul(0), values({9}).mul(0)}, on_device(),
                [](const Tensors& x) {
                  const at::Tensor step = at::full({}, 1.0, x[0].options());
                  at::_fused_adamw_({x[0]}, {x[1]}, {x[2]}, {x[3]}, {}, {step}, 0.01, 0.9, 0.99, 0.1, 1e-8, false, false);
                  return Tensors{};
                });
  expect_as_cpu("foreach", {values({4}), values({3})}, on_device(), [](const Tensors& x) {
    at::_foreach_mul_({x[0], x[1]}, 2.0);
    return at::_foreach_add({x[0], x[1]}, 1.0);
  });
}

TEST_F(Sim, WhatItCannotDoIsSaidByName) {
  const at::Tensor x = at::ones({4}, on_device());
  const auto message = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const c10::Error& e) {
      return e.what_without_backtrace();
    }
    return "nothing";
  };
  EXPECT_NE(message([&] { at::randn({3}, on_device()); }).find("'aten::normal_' draws random numbers"), std::string::npos);
  EXPECT_NE(message([&] { at::bernoulli(x); }).find("random"), std::string::npos);
  EXPECT_NE(message([&] { x.nonzero(); }).find("'aten::nonzero' gives an output whose shape depends on values"),
            std::string::npos);
  EXPECT_NE(message([&] { at::mm(x.view({2, 2}), x.view({4, 1})); }).find("mat1 and mat2"), std::string::npos)
      << "at the call, not at a wait";
  EXPECT_NE(message([&] { x.add(at::ones({4})); }).find("same device"), std::string::npos);
  EXPECT_NE(message([&] { x.index_select(0, at::zeros({2}, at::kLong)); }).find("one of cpu"), std::string::npos);
  EXPECT_NE(message([&] { at::Tensor(x).add_(at::ones({5}, on_device())); }), "nothing");
}

}  // namespace
}  // namespace qft::sim
