#include "qft/core/log.h"

#include "qft/core/error.h"

#include <atomic>
#include <iostream>

#include <boost/core/null_deleter.hpp>
#include <boost/log/core.hpp>
#include <boost/log/expressions.hpp>
#include <boost/log/sinks/sync_frontend.hpp>
#include <boost/log/sinks/text_ostream_backend.hpp>
#include <boost/log/sources/record_ostream.hpp>
#include <boost/log/sources/severity_logger.hpp>
#include <boost/log/support/date_time.hpp>
#include <boost/log/utility/setup/common_attributes.hpp>
#include <boost/smart_ptr/make_shared.hpp>
#include <boost/smart_ptr/shared_ptr.hpp>

namespace qft::log {
namespace {

namespace bl = boost::log;
using Sink = bl::sinks::synchronous_sink<bl::sinks::text_ostream_backend>;
using Logger = bl::sources::severity_logger_mt<Severity>;

constexpr const char* kNames[] = {"trace", "debug", "info", "warning", "error"};

std::atomic<Severity> g_threshold{Severity::info};
std::atomic<int> g_rank{0};
std::atomic<int> g_world{1};

Logger& logger() {
  static Logger instance;
  return instance;
}

void format_record(const bl::record_view& record, bl::formatting_ostream& out) {
  const auto time = record["TimeStamp"].extract<boost::posix_time::ptime>();
  const auto severity = record["Severity"].extract<Severity>();
  if (time) {
    const auto t = time->time_of_day();
    out << fmt::format("{:02d}:{:02d}:{:02d}.{:03d} ", t.hours(), t.minutes(), t.seconds(), t.total_milliseconds() % 1000);
  }
  if (severity) out << fmt::format("{:<7} ", kNames[static_cast<int>(*severity)]);
  if (g_world.load() > 1) out << fmt::format("[{}/{}] ", g_rank.load(), g_world.load());
  out << record[bl::expressions::smessage];
}

void install_sink() {
  static const bool once = [] {
    auto backend = boost::make_shared<bl::sinks::text_ostream_backend>();
    backend->add_stream(boost::shared_ptr<std::ostream>(&std::cerr, boost::null_deleter()));
    backend->auto_flush(true);
    auto sink = boost::make_shared<Sink>(backend);
    sink->set_formatter(&format_record);
    bl::core::get()->add_sink(sink);
    bl::add_common_attributes();
    return true;
  }();
  (void)once;
}

}  // namespace

void init(const Options& options) {
  install_sink();
  g_rank = options.rank;
  g_world = options.world_size;
  const bool quiet = options.rank != 0 && !options.all_ranks;
  g_threshold = quiet ? std::max(options.level, Severity::warning) : options.level;
}

Severity parse_severity(std::string_view word) {
  for (int i = 0; i < 5; ++i)
    if (word == kNames[i]) return static_cast<Severity>(i);
  fail_config("log level '{}' is unknown: use trace, debug, info, warning or error", word);
}

bool enabled(Severity severity) {
  return severity >= g_threshold.load(std::memory_order_relaxed);
}

void write(Severity severity, std::string_view message) {
  install_sink();
  BOOST_LOG_SEV(logger(), severity) << message;
}

}  // namespace qft::log
