#include "qft/core/log.h"

#include "qft/core/error.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <mutex>
#include <set>
#include <unistd.h>

#include <boost/core/null_deleter.hpp>
#include <boost/log/core.hpp>
#include <boost/log/expressions.hpp>
#include <boost/log/sinks/sync_frontend.hpp>
#include <boost/log/sinks/text_file_backend.hpp>
#include <boost/log/sinks/text_ostream_backend.hpp>
#include <boost/log/sources/record_ostream.hpp>
#include <boost/log/sources/severity_logger.hpp>
#include <boost/log/support/date_time.hpp>
#include <boost/log/utility/exception_handler.hpp>
#include <boost/log/utility/setup/common_attributes.hpp>
#include <boost/smart_ptr/make_shared.hpp>
#include <boost/smart_ptr/shared_ptr.hpp>

namespace qft::log {
namespace {

namespace bl = boost::log;
using Sink = bl::sinks::synchronous_sink<bl::sinks::text_ostream_backend>;
using FileSink = bl::sinks::synchronous_sink<bl::sinks::text_file_backend>;
using Logger = bl::sources::severity_logger_mt<Severity>;

constexpr std::uintmax_t kFileBytes = std::uintmax_t{16} << 20;
constexpr unsigned kFilesKept = 5;
constexpr std::string_view kFileStem = "rank-";

std::atomic<Severity> g_threshold{Severity::info};  ///< the lowest of all sinks
std::atomic<Severity> g_printed{Severity::info};
std::atomic<Severity> g_kept{Severity::error};  ///< level of the log file, if one is open
std::atomic<bool> g_has_file{false}, g_file_alone{false};
std::atomic<int> g_rank{0};
std::atomic<int> g_world{1};

Logger& logger() {
  static Logger instance;
  return instance;
}

/// The open file's sink; null if no file is open.
boost::shared_ptr<FileSink>& file_sink() {
  static boost::shared_ptr<FileSink> instance;
  return instance;
}

void format_record(const bl::record_view& record, bl::formatting_ostream& out, bool with_date) {
  const auto time = record["TimeStamp"].extract<boost::posix_time::ptime>();
  const auto severity = record["Severity"].extract<Severity>();
  if (time && with_date) out << boost::gregorian::to_iso_extended_string(time->date()) << ' ';
  if (time) {
    const auto t = time->time_of_day();
    out << fmt::format("{:02d}:{:02d}:{:02d}.{:03d} ", t.hours(), t.minutes(), t.seconds(), t.total_milliseconds() % 1000);
  }
  if (severity) out << fmt::format("{:<7} ", kSeverityNames[static_cast<int>(*severity)]);
  if (g_world.load() > 1) out << fmt::format("[{}/{}] ", g_rank.load(), g_world.load());
  out << record[bl::expressions::smessage];
}

Severity severity_of(const bl::attribute_value_set& values) {
  const auto severity = values["Severity"].extract<Severity>();
  return severity ? *severity : Severity::error;
}

void set_threshold() {
  g_threshold = g_has_file ? std::min(g_printed.load(), g_kept.load()) : g_printed.load();
}

void install_sink() {
  static const bool once = [] {
    auto backend = boost::make_shared<bl::sinks::text_ostream_backend>();
    backend->add_stream(boost::shared_ptr<std::ostream>(&std::cerr, boost::null_deleter()));
    backend->auto_flush(true);
    auto sink = boost::make_shared<Sink>(backend);
    sink->set_formatter([](const bl::record_view& record, bl::formatting_ostream& out) { format_record(record, out, false); });
    sink->set_filter([](const bl::attribute_value_set& values) { return !g_file_alone && severity_of(values) >= g_printed; });
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
  g_printed = quiet ? std::max(options.level, Severity::warning) : options.level;
  set_threshold();
}

Severity parse_severity(std::string_view word) {
  for (int i = 0; i < 5; ++i)
    if (word == kSeverityNames[i]) return static_cast<Severity>(i);
  fail_config("log level '{}' is unknown: use trace, debug, info, warning or error", word);
}

bool enabled(Severity severity) {
  return severity >= g_threshold.load(std::memory_order_relaxed);
}

void write(Severity severity, std::string_view message) {
  install_sink();
  BOOST_LOG_SEV(logger(), severity) << message;
}

void warn_once(const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> said;
  if (g_rank.load() != 0) return;
  const std::lock_guard lock(mutex);
  if (said.insert(message).second) write(Severity::warning, message);
}

void open_file(const std::filesystem::path& dir, Severity level) {
  install_sink();
  std::error_code code;
  std::filesystem::create_directories(dir, code);
  require(!code, "log_dir: cannot make directory '{}': {}", dir.string(), code.message());
  require(::access(dir.c_str(), W_OK | X_OK) == 0, "log_dir: cannot write in '{}': {}", dir.string(), std::strerror(errno));
  close_file();
  namespace keywords = bl::keywords;
  const std::string stem = (dir / fmt::format("{}{}", kFileStem, g_rank.load())).string();
  auto backend = boost::make_shared<bl::sinks::text_file_backend>(
      keywords::file_name = stem + ".log", keywords::target_file_name = stem + ".%N.log", keywords::open_mode = std::ios::app,
      keywords::rotation_size = kFileBytes, keywords::enable_final_rotation = false, keywords::auto_flush = true);
  backend->set_file_collector(bl::sinks::file::make_collector(keywords::target = dir.string(), keywords::max_files = kFilesKept));
  backend->scan_for_files();
  auto sink = boost::make_shared<FileSink>(backend);
  sink->set_formatter([](const bl::record_view& record, bl::formatting_ostream& out) { format_record(record, out, true); });
  sink->set_filter([](const bl::attribute_value_set& values) { return severity_of(values) >= g_kept; });
  sink->set_exception_handler(bl::make_exception_suppressor());
  bl::core::get()->add_sink(sink);
  file_sink() = sink;
  g_kept = level;
  g_has_file = true;
  set_threshold();
}

void close_file() {
  if (!file_sink()) return;
  bl::core::get()->remove_sink(file_sink());
  file_sink().reset();
  g_has_file = false;
  set_threshold();
}

bool is_log_file(std::string_view name) {
  return name.starts_with(kFileStem) && name.ends_with(".log");
}

void write_to_file(Severity severity, std::string_view message) {
  if (!g_has_file) return;
  g_file_alone = true;
  write(severity, message);
  g_file_alone = false;
}

}  // namespace qft::log
