// Logging to stderr: a small interface over Boost.Log, which only log.cpp includes to keep compile times low.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace qft::log {

enum class Severity { trace, debug, info, warning, error };

/// Options of init(). Rank 0 prints everything from `level` on; the other ranks print warnings and errors, or everything from
/// `level` on if `all_ranks`.
struct Options {
  Severity level = Severity::info;
  int rank = 0;
  int world_size = 1;
  bool all_ranks = false;
};

/// Sets up the sink. May be called again, for instance once the rank is known. Thread-safe afterwards.
void init(const Options& options);

/// Parses "trace", "debug", "info", "warning" or "error"; throws ConfigError for any other word.
Severity parse_severity(std::string_view word);

/// True if a message of this severity would be printed on this rank.
bool enabled(Severity severity);

/// Writes one message (no trailing newline needed).
void write(Severity severity, std::string_view message);
/// Writes a warning about something that all ranks see alike: only on rank 0, and only once in this process.
void warn_once(const std::string& message);

template <class... Args>
void at(Severity severity, fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(severity)) write(severity, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void trace(fmt::format_string<Args...> text, Args&&... args) {
  at(Severity::trace, text, std::forward<Args>(args)...);
}
template <class... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) {
  at(Severity::debug, text, std::forward<Args>(args)...);
}
template <class... Args>
void info(fmt::format_string<Args...> text, Args&&... args) {
  at(Severity::info, text, std::forward<Args>(args)...);
}
template <class... Args>
void warn(fmt::format_string<Args...> text, Args&&... args) {
  at(Severity::warning, text, std::forward<Args>(args)...);
}
template <class... Args>
void error(fmt::format_string<Args...> text, Args&&... args) {
  at(Severity::error, text, std::forward<Args>(args)...);
}

/// In the order of Severity.
inline constexpr std::string_view kSeverityNames[] = {"trace", "debug", "info", "warning", "error"};

/// From now on writes each message from `level` on to dir/rank-<rank>.log as well, with the date; appends to an existing file.
/// Closes the file that was open before. At 16 MiB the file becomes rank-<rank>.<number>.log and a new one begins; the newest
/// five of these are kept. A disk that fills up later stops nothing. Creates the folder; throws Error if it cannot be created
/// or written to.
void open_file(const std::filesystem::path& dir, Severity level);

/// From now on writes to no file.
void close_file();

/// True if `name` is a file name that open_file() uses.
bool is_log_file(std::string_view name);

/// Writes to the file alone, if one is open. For messages that are printed by other means.
void write_to_file(Severity severity, std::string_view message);

}  // namespace qft::log
