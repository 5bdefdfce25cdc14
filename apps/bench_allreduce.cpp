#include "qft/comm/bandwidth.h"
#include "qft/comm/device_communicator.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <cstdio>

#include "bench.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::apps {
namespace {

int run(comm::Session& session, const config::CommandLine& line) {
  const auto kind = comm::parse_collective(line.options["collective"].as<std::string>());
  const auto largest = line.options["max-bytes"].as<std::int64_t>();
  const auto seconds = line.options["seconds"].as<double>();
  if (largest < 8) fail_config("--max-bytes is {}: set it to 8 or more", largest);
  if (!(seconds > 0)) fail_config("--seconds is {}: set it above 0", seconds);
  const auto device = comm::choose_device(session, line.options["device"].as<std::string>());
  const auto comm = comm::make_device_communicator(session.world(), device, "bench");
  std::vector<comm::BandwidthRow> rows;
  for (const auto bytes : comm::bandwidth_sizes(static_cast<std::size_t>(largest))) {
    rows.push_back(comm::measure(*comm, device, kind, bytes, seconds));
  }
  if (session.rank() != 0) return kExitOk;
  if (line.json) {
    nlohmann::json table = nlohmann::json::array();
    for (const auto& row : rows) table.push_back(to_json(row));
    const nlohmann::json result = {{"collective", name_of(kind)}, {"ranks", session.size()}, {"nodes", session.node_count()},
                                   {"backend", comm->backend()},  {"device", device.str()},  {"rows", table}};
    std::printf("%s\n", result.dump(2).c_str());
  } else {
    std::printf("ranks %d, nodes %d, %s, %s\n%s", session.size(), session.node_count(), std::string(comm->backend()).c_str(),
                device.str().c_str(), comm::format_table(kind, rows).c_str());
  }
  return kExitOk;
}

}  // namespace

extern const Benchmark kBenchAllReduce{"allreduce", run};

}  // namespace qft::apps
