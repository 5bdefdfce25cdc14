// Runs optimizer steps with gradients from a file, for scripts that compare with other implementations; several ranks share one
// buffer.
//   optimizer_probe SETTINGS.json NUMBERS OUT
// SETTINGS: {optim, args, fp64, lr, decay, steps, params: [{shape, stack, place}]}. NUMBERS: fp64, all parameters one after
// another, then their gradients for each step. OUT.<rank>: the rank's part of each parameter as {master, states: {name: {begin,
// values}}}.
#include "qft/comm/session.h"
#include "qft/core/program.h"
#include "qft/optim/optimizer.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <nlohmann/json.hpp>

namespace {

using namespace qft;  // NOLINT: a test program
using nlohmann::json;

std::vector<double> numbers_of(const char* path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  std::vector<double> all(static_cast<std::size_t>(in.tellg()) / sizeof(double));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(all.data()), static_cast<std::streamsize>(all.size() * sizeof(double)));
  return all;
}

json values_of(const at::Tensor& t) {
  const at::Tensor wide = t.to(at::kDouble).contiguous();
  return std::vector<double>(wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel());
}

std::vector<optim::Segment> segments_of(const json& params) {
  std::vector<optim::Segment> segments;
  std::int64_t at = 0;
  for (const json& p : params) {
    using Place = optim::Param::Place;
    const optim::Param param{p.at("shape").get<Shape>(), p.value("stack", false),
                             p.value("place", "") == "embedding" ? Place::embedding : Place::layer};
    segments.push_back({at, at + param.numel(), 1.0, p.value("decays", true) ? 1.0 : 0.0, param});
    at = segments.back().end;
  }
  return segments;
}

void run(const json& settings, std::vector<double> numbers, const std::string& out, comm::Communicator& world) {
  const auto segments = segments_of(settings.at("params"));
  const std::int64_t n = segments.back().end, chunk = ((n + world.size() - 1) / world.size() + 15) / 16 * 16;
  const std::int64_t begin = chunk * world.rank(), length = std::max<std::int64_t>(0, std::min(chunk, n - begin));
  const auto precision = settings.at("fp64").get<bool>() ? optim::Precision::fp64() : optim::Precision::fp32();
  const at::Tensor all = at::from_blob(numbers.data(), {std::ssize(numbers) / n, n}, at::kDouble);
  const at::Tensor weights = at::zeros({chunk}, precision.compute), grads = at::zeros({chunk}, precision.grad);
  weights.narrow(0, 0, length).copy_(all[0].narrow(0, begin, length));
  optim::Optimizer optimizer(
      optim::rule_of(settings.at("optim").get<std::string>()), {{"unit", weights, grads, segments, begin}},
      {.weight_decay = settings.at("decay"), .args = optim::RuleArgs(settings.at("args").get<std::string>())}, precision, &world);
  for (std::int64_t step = 1; step < all.size(0); ++step) {
    grads.zero_();
    grads.narrow(0, 0, length).copy_(all[step].narrow(0, begin, length));
    optimizer.step(settings.at("lr"), 1.0);
  }
  json result = json::array();
  for (const optim::Segment& s : segments) {
    const std::int64_t first = std::max<std::int64_t>(s.begin - begin, 0), last = std::min(s.end - begin, length);
    json states = json::object();
    for (const optim::HeldState& held : optimizer.held_states(0, s.begin))
      states[std::string(held.spec.name)] = {{"begin", held.begin}, {"values", values_of(held.values)}};
    result.push_back(
        {{"master", first < last ? values_of(weights.narrow(0, first, last - first)) : json::array()}, {"states", states}});
  }
  std::ofstream(out + "." + std::to_string(world.rank())) << result;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    comm::Session session(argc, argv);
    std::ifstream settings(argv[1]);
    run(json::parse(settings), numbers_of(argv[2]), argv[3], session.world());
    return 0;
  });
}
