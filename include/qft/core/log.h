// Logging to stderr: a small interface over Boost.Log, which only log.cpp includes to keep compile times low.
#pragma once

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

}  // namespace qft::log
