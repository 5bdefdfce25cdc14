// Errors that carry context. Libraries throw them; only main() turns an Error into an exit code.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace qft {

/// Exit codes of the programs; scripts rely on them.
enum ExitCode : int { kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitRequeue = 75 };

/// A failure while running (exit code 1). The message says what failed, the place, both values, and what to do next.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  virtual int exit_code() const noexcept { return kExitFailed; }
};

/// Wrong usage or configuration, found before any work was done (exit code 2).
class ConfigError : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return kExitUsage; }
};

/// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format(text, std::forward<Args>(args)...));
}

/// Throws ConfigError with a formatted message.
template <class... Args>
[[noreturn]] void fail_config(fmt::format_string<Args...> text, Args&&... args) {
  throw ConfigError(fmt::format(text, std::forward<Args>(args)...));
}

/// Throws Error unless `ok`. For conditions that input data or the system can break.
template <class... Args>
void require(bool ok, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) [[unlikely]]
    throw Error(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace qft

/// Throws Error unless `condition` holds. For programming errors inside qft; the message names file and line.
#define QFT_ASSERT(condition, ...)                                                                                             \
  do {                                                                                                                         \
    if (!(condition)) [[unlikely]]                                                                                             \
      throw ::qft::Error(                                                                                                      \
          ::fmt::format("{}:{}: internal check '{}' failed: {}", __FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__))); \
  } while (false)
