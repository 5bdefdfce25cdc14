#include "qft/core/program.h"

#include "qft/core/error.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace qft {

void ignore_write_signals() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
}

int run_program(const std::function<int()>& body) {
  const auto failed = [](const std::exception& error, int code) {
    std::fputs(fmt::format("error: {}\n", error.what()).c_str(), stderr);
    return code;
  };
  try {
    return body();
  } catch (const Error& error) {
    return failed(error, error.exit_code());
  } catch (const std::exception& error) {
    return failed(error, kExitFailed);
  }
}

void quick_exit_program(int code) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::exit(code);
#else
  std::cout.flush();
  std::fflush(nullptr);
  std::quick_exit(code);
#endif
}

std::filesystem::path program_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

std::vector<std::filesystem::path> config_folders(const char* variable, std::string_view kind) {
  std::vector<std::filesystem::path> folders;
  if (const char* own = std::getenv(variable); own != nullptr && *own != '\0') folders.emplace_back(own);
  if (const auto program = program_folder(); !program.empty())
    folders.push_back(program.parent_path() / "share/qft/configs" / kind);
  return folders;
}

}  // namespace qft
