#include "qft/plan/measure.h"

#include "qft/comm/bandwidth.h"
#include "qft/comm/device_communicator.h"
#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/version.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/memory.h"
#include "qft/device/stream.h"
#include "qft/plan/work.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <tuple>
#include <utility>

#include "layers_here.h"
#include <c10/core/InferenceMode.h>
#include <nlohmann/json.hpp>

namespace qft::plan {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double total_seconds(const std::vector<Sample>& samples) {
  double total = 0;
  for (const Sample& s : samples) total += s.seconds;
  return total;
}

double total_operations(const std::vector<Sample>& samples) {
  double total = 0;
  for (const Sample& s : samples) total += s.operations;
  return total;
}

}  // namespace

class Measurement::Impl {
 public:
  Impl(comm::Session& session, const RunPlan& run, c10::Device device, const MeasureOptions& options)
      : session_(session),
        device_(device),
        before_(device::memory_use(device).current),
        whole_(*run.spec),
        precision_(run.precision),
        options_(options),
        layers_(whole_, precision_, device, options) {
    for (std::int64_t t = 0; t < options.tokens; t += options.sequence)
      shape_.add_sequence(std::min(options.sequence, options.tokens - t), 0);
    shape_.labels = options.labels;
  }

  std::vector<Sample> products() {
    std::vector<Sample> all;
    for (int p = 0; p < layers_.projections_of_a_layer(); ++p)
      for (const bool backward : {false, true})
        all.push_back({fmt::format("{} {}", layers_.projection_name(p), backward ? "backward" : "forward"),
                       a_layer([&] { backward ? layers_.products_backward(p) : layers_.products_forward(p); }),
                       layers_.projection_operations(p, backward)});
    return all;
  }

  /// Measures the time that LoRA adds to the projections.
  Sample narrow() {
    if (!whole_.adapter.enabled() || forward_work(whole_, 1, shape_, precision_.compute).narrow == 0) return {};
    // Alternates both, so that other programs on the machine disturb both equally.
    const double added =
        slowest([&] { return once([&] { layers_.projections(true); }) - once([&] { layers_.projections(false); }); }) /
        layers_.count();
    require(added > 0, "the adapter's products seem to take no time ({:.3f} ms): the machine is too busy to measure; try again",
            added * 1e3);
    const double operations = forward_work(whole_, 1, shape_, precision_.compute).narrow +
                              backward_work(whole_, 1, shape_, precision_.compute, false, true).narrow;
    return {fmt::format("{}, all of a layer", whole_.adapter.oft.enabled() ? "OFT" : "LoRA"), added, operations};
  }

  std::vector<Sample> attention() {
    const Work forward = forward_work(whole_, 1, shape_, precision_.compute),
               backward = backward_work(whole_, 1, shape_, precision_.compute, false, true);
    return {{"attention forward", a_layer([&] { layers_.attention_forward(); }), forward.attention},
            {"attention backward", a_layer([&] { layers_.attention_backward(); }), backward.attention}};
  }

  Sample elementwise() {
    model::ModelConfig config = whole_.config;  // the timed operations include neither norms of q and k nor dropout
    config.qk_norm = model::QkNorm::none;
    model::AdapterConfig adapter = whole_.adapter;
    adapter.lora.dropout = 0;
    const auto plain = model::ModelSpec::build(config, whole_.finetuning, adapter, {}, whole_.head, whole_.freeze);
    const double bytes = forward_work(plain, 1, shape_, precision_.compute).bytes +
                         backward_work(plain, 1, shape_, precision_.compute, false, true).bytes;
    return {"norms, rotary, activation, sums", a_layer([&] { layers_.elementwise(); }), 0, bytes};
  }

  std::vector<Sample> step(const Machine& machine) {
    const auto predicted = [&](const Work& work) { return seconds(work, machine, precision_.compute); };
    const double forward = a_layer([&] { layers_.forward(); }), both = a_layer([&] { layers_.forward_backward(); });
    const double head = time_of([&] { layers_.head(); });
    const Work up = forward_work(whole_, 1, shape_, precision_.compute),
               down = backward_work(whole_, 1, shape_, precision_.compute, false, true);
    const Work top = forward_work(whole_, whole_.head_unit(), shape_, precision_.compute);
    const auto layers = static_cast<double>(whole_.config.num_layers);
    std::vector<Sample> all = {{"layer forward", forward, up.matmul + up.narrow + up.attention, 0, predicted(up)},
                               {"layer backward", both - forward, down.matmul + down.narrow + down.attention, 0, predicted(down)},
                               {"head forward and backward", head, top.matmul, 0, predicted(top)}};
    all.push_back({"micro-batch", layers * both + head, layers * (all[0].operations + all[1].operations) + top.matmul, 0,
                   layers * (all[0].predicted + all[1].predicted) + all[2].predicted});
    return all;
  }

  Machine machine() {
    Machine m;
    m.device = device_.is_cpu() ? "cpu" : std::string(device::backend_of(device_).name());
    m.unified = !device_.is_cpu() && !device::has_own_memory(device_);
    m.ranks_per_node = session_.local_size();
    if (device_.is_cpu()) m.threads_per_rank = at::get_num_threads();
    m.name = fmt::format("{} x {}, {} ranks each", session_.node_count(), device::describe(device_), session_.local_size());
    m.source = fmt::format("measured by qft bench machine of qft {} on {} ranks with {}, {} tokens in sequences of {}", version(),
                           session_.size(), whole_.config.architecture, options_.tokens, options_.sequence);
    m.memory_gb = static_cast<double>(device::memory_use(device_).total) / 1e9;
    m.host_memory_gb = static_cast<double>(device::host_memory().total) / 1e9;
    m.process_gb = static_cast<double>(before_) / 1e9;
    const auto all = products();
    const double rate = total_operations(all) / total_seconds(all);
    tflops_of(m) = rate / 1e12;
    if (const Sample n = narrow(); n.operations > 0) m.narrow_efficiency = n.operations / n.seconds / rate;
    const auto both = attention();
    m.attention_efficiency = total_operations(both) / total_seconds(both) / rate;
    const Sample e = elementwise();
    m.memory_gb_s = e.bytes / e.seconds / 1e9;
    if (!device_.is_cpu()) m.host_device_gb_s = host_copies();
    links(m);
    // Rounds to four digits: the measurement is not more precise.
    m.visit([](const config::Field&, config::FieldRef ref) {
      if (auto* const* number = std::get_if<double*>(&ref)) **number = std::stod(fmt::format("{:.4g}", **number));
    });
    return m;
  }

 private:
  double& tflops_of(Machine& m) const {
    switch (precision_.compute) {
      case at::kBFloat16:
        return m.matmul_tflops_bf16;
      case at::kHalf:
        return m.matmul_tflops_fp16;
      case at::kDouble:
        return m.matmul_tflops_fp64;
      default:
        return m.matmul_tflops_fp32;
    }
  }

  double once(const std::function<void()>& work) {
    const c10::InferenceMode no_autograd;
    const auto start = Clock::now();
    work();
    device::Stream::current(device_).synchronize();
    return seconds_since(start);
  }

  /// Returns the median of several calls of `sample`, on the rank with the largest median.
  double slowest(const std::function<double()>& sample) {
    constexpr double kSeconds = 0.4;
    comm::Communicator& world = session_.world();
    sample();
    world.barrier();
    const auto start = Clock::now();
    sample();
    const double first = comm::all_reduce_value(world, seconds_since(start), comm::ReduceOp::max);
    const auto runs = comm::broadcast_value(
        world, std::clamp<std::int64_t>(static_cast<std::int64_t>(kSeconds / std::max(first, 1e-7)), 5, 1000));
    std::vector<double> times(static_cast<std::size_t>(runs));
    for (double& t : times) t = sample();
    std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
    return comm::all_reduce_value(world, times[static_cast<std::size_t>(runs / 2)], comm::ReduceOp::max);
  }
  double time_of(const std::function<void()>& work) {
    return slowest([&] { return once(work); });
  }
  double a_layer(const std::function<void()>& work) { return time_of(work) / layers_.count(); }

  /// GB/s from host to device.
  double host_copies() {
    constexpr std::size_t kBytes = std::size_t{256} << 20;
    const device::PinnedBuffer host(kBytes, device_);
    const device::DeviceBuffer there(kBytes, device_);
    return static_cast<double>(kBytes) / time_of([&] { device::copy_bytes(there.data(), host.data(), kBytes, device_); }) / 1e9;
  }

  std::int64_t item() const { return static_cast<std::int64_t>(c10::elementSize(precision_.compute)); }

  std::size_t bytes_of_a_layer() const { return static_cast<std::size_t>(whole_.units[1].bytes(item())); }

  /// Gathers layers' weights, as many at once as the prefetch budget allows: one gather may not fill a link.
  class Gathers {
   public:
    Gathers(comm::Communicator& comm, c10::Device device, std::size_t bytes, std::size_t in_flight)
        : comm_(comm),
          count_(bytes / sizeof(float) / static_cast<std::size_t>(comm.size())),
          in_flight_(in_flight),
          own_(count_ * sizeof(float), device),
          all_(in_flight * whole(), device) {}

    double received(std::size_t gathers) const {
      return static_cast<double>(gathers * count_ * sizeof(float)) * (comm_.size() - 1);
    }

    /// Runs `gathers` gathers and calls `meanwhile` until all are done. Returns the seconds. Collective.
    double run(std::size_t gathers, const std::function<void()>& meanwhile) {
      comm_.host().barrier();
      std::size_t started = 0;
      const auto start = Clock::now();
      do {
        while (!works_.empty() && works_.front().test()) works_.pop_front();
        for (; works_.size() < in_flight_ && started < gathers; ++started)
          works_.push_back(comm_.start_all_gather(own_.data(), static_cast<char*>(all_.data()) + started % in_flight_ * whole(),
                                                  count_, DType::f32));
        if (!works_.empty()) meanwhile();
      } while (!works_.empty());
      return seconds_since(start);
    }
    void wait() { works_.front().wait_host(); }

   private:
    std::size_t whole() const { return count_ * static_cast<std::size_t>(comm_.size()) * sizeof(float); }
    comm::Communicator& comm_;
    std::size_t count_, in_flight_;
    device::DeviceBuffer own_, all_;
    std::deque<comm::Work> works_;
  };

  /// Number of layers that fit into the default prefetch budget.
  std::size_t in_flight() const {
    std::int64_t largest = 0;
    for (const auto& unit : whole_.units) largest = std::max(largest, unit.bytes(item()));
    const auto layer = whole_.units[1].bytes(item());
    return static_cast<std::size_t>(std::clamp<std::int64_t>(largest / std::max<std::int64_t>(layer, 1) + 1, 2, 8));
  }

  /// Measures GB/s, and seconds of latency per hop.
  std::pair<double, double> link(comm::Communicator& comm) {
    constexpr double kSeconds = 2.0;
    const auto ranks = static_cast<std::size_t>(comm.size());
    const auto one = comm::measure(comm, device_, comm::OpKind::all_gather, bytes_of_a_layer(), 0.5);
    const auto small = comm::measure(comm, device_, comm::OpKind::all_gather, ranks * sizeof(float), 0.2);
    Gathers gathers(comm, device_, bytes_of_a_layer(), in_flight());
    const auto count = static_cast<std::size_t>(std::clamp(kSeconds * 1e6 / one.microseconds, 8.0, 400.0));
    const double seconds = comm::all_reduce_value(comm, gathers.run(count, [&] { gathers.wait(); }), comm::ReduceOp::max);
    return {gathers.received(count) / seconds / 1e9, small.microseconds / static_cast<double>(ranks - 1)};
  }

  void links(Machine& m) {
    if (session_.size() == 1) return;
    const auto world = comm::make_device_communicator(session_.world(), device_, "measure");
    if (session_.node_count() > 1) std::tie(m.network_gb_s, m.network_latency_us) = link(*world);
    if (session_.local_size() > 1) {
      const auto node = comm::make_device_communicator(session_.node_group(), device_, "node");
      std::tie(m.node_gb_s, m.node_latency_us) = link(*node);
    }
    const double gb_s = m.network_gb_s > 0 ? m.network_gb_s : m.node_gb_s;
    const double others = static_cast<double>(session_.size() - 1) / session_.size();
    if (device_.is_cpu())
      m.compute_s_per_gb = compute_cost(*world, static_cast<double>(bytes_of_a_layer()) * others / (gb_s * 1e9));
  }

  /// Measures the compute seconds lost per GB received: computes layers while gathers run all the time.
  double compute_cost(comm::Communicator& comm, double gather_seconds) {
    constexpr double kSeconds = 2.0;
    const c10::InferenceMode no_autograd;
    Gathers gathers(comm, device_, bytes_of_a_layer(), in_flight());
    const auto count = static_cast<std::size_t>(std::clamp(kSeconds / gather_seconds, 8.0, 400.0));
    const double alone = time_of([&] { layers_.forward(); });
    std::int64_t passes = 0;
    const double seconds = gathers.run(count, [&] {
      layers_.forward();
      ++passes;
    });
    const double lost = seconds - static_cast<double>(passes) * alone;
    return comm::all_reduce_value(session_.world(), std::max(0.0, lost / gathers.received(count) * 1e9), comm::ReduceOp::max);
  }

  comm::Session& session_;
  c10::Device device_;
  std::int64_t before_;
  model::ModelSpec whole_;
  optim::Precision precision_;
  MeasureOptions options_;
  SampleLayers layers_;
  MicroShape shape_;
};

Measurement::Measurement(comm::Session& session, const RunPlan& run, c10::Device device, const MeasureOptions& options)
    : impl_(std::make_unique<Impl>(session, run, device, options)) {}
Measurement::~Measurement() = default;

std::vector<Sample> Measurement::gemm() {
  auto all = impl_->products();
  if (const Sample narrow = impl_->narrow(); narrow.operations > 0) all.push_back(narrow);
  return all;
}
std::vector<Sample> Measurement::attention() {
  return impl_->attention();
}
std::vector<Sample> Measurement::step(const Machine& machine) {
  return impl_->step(machine);
}
Machine Measurement::machine() {
  return impl_->machine();
}

std::string to_text(const std::vector<Sample>& samples) {
  std::string text = fmt::format("{:<28}{:>10}{:>14}{:>15}\n", "", "ms", "rate", "predicted ms");
  for (const Sample& s : samples) {
    const std::string rate = s.operations > 0 ? fmt::format("{:.3f} TFLOPS", s.operations / s.seconds / 1e12)
                             : s.bytes > 0    ? fmt::format("{:.1f} GB/s", s.bytes / s.seconds / 1e9)
                                              : "";
    const std::string predicted = s.predicted > 0 ? fmt::format("{:.3f}", s.predicted * 1e3) : "";
    text += fmt::format("{:<28}{:>10.3f}{:>14}{:>15}\n", s.what, s.seconds * 1e3, rate, predicted);
  }
  return text;
}

nlohmann::json to_json(const std::vector<Sample>& samples) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Sample& s : samples) {
    nlohmann::json row = {{"what", s.what}, {"seconds", s.seconds}};
    if (s.operations > 0) row["operations"] = s.operations;
    if (s.bytes > 0) row["bytes"] = s.bytes;
    if (s.predicted > 0) row["predicted_seconds"] = s.predicted;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace qft::plan
