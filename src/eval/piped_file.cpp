#include "piped_file.h"

#include "qft/core/error.h"
#include "qft/io/storage.h"

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <system_error>
#include <unistd.h>

namespace qft::eval {

namespace fs = std::filesystem;

PipedFile::PipedFile() {
  if (isatty(STDIN_FILENO) != 0) fail_config("--input is -, but nothing is piped in: cat prompts.jsonl | qft generate ...");
  const std::string bytes(std::istreambuf_iterator<char>(std::cin), {});
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) fail_config("--input is -, but standard input is empty: pipe records or lines in");
  std::string folder = (fs::temp_directory_path() / "qft-XXXXXX").string();
  require(mkdtemp(folder.data()) != nullptr, "cannot make a folder in '{}' for standard input: set TMPDIR",
          fs::temp_directory_path().string());
  path_ = fs::path(folder) / (bytes[first] == '{' || bytes[first] == '[' ? "input.json" : "input.txt");
  io::write_file(io::posix_storage(), path_, bytes);
}

PipedFile::~PipedFile() {
  std::error_code ignored;
  fs::remove_all(path_.parent_path(), ignored);
}

std::string PipedFile::named(std::string message) const {
  const std::string copy = path_.string();
  for (std::size_t at = message.find(copy); at != message.npos; at = message.find(copy, at + kName.size()))
    message.replace(at, copy.size(), kName);
  return message;
}

}  // namespace qft::eval
