// qft-ckpt: what is in a checkpoint, and is it whole. Needs no mpirun.
#include "qft/checkpoint/checkpoint.h"
#include "qft/checkpoint/inspect.h"
#include "qft/checkpoint/verify.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/version.h"

#include <iostream>
#include <string>
#include <vector>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;
using nlohmann::ordered_json;

constexpr const char* kUsage =
    "usage: qft-ckpt inspect|verify [--json] DIR...\n"
    "\n"
    "  inspect   step, loss, adapter, tensors and files\n"
    "  verify    checksums, sizes and completeness; exit code 1 where something is wrong\n"
    "\n"
    "DIR is a checkpoint, an adapter or a model directory, or an output_dir: then each checkpoint in it.\n";

// An output_dir stands for its checkpoints.
std::vector<fs::path> expand(const std::vector<std::string>& arguments) {
  std::vector<fs::path> dirs;
  for (const std::string& argument : arguments) {
    const auto candidates = qft::checkpoint::list_checkpoints(argument);
    for (const auto& candidate : candidates) dirs.push_back(candidate.dir);
    if (candidates.empty()) dirs.emplace_back(argument);
  }
  return dirs;
}

int inspect(const std::vector<fs::path>& dirs, bool as_json) {
  ordered_json list = ordered_json::array();
  for (const fs::path& dir : dirs) list.push_back(qft::checkpoint::summarize(dir));
  if (as_json)
    std::cout << list.dump(2) << "\n";
  else
    for (const ordered_json& summary : list) std::cout << qft::checkpoint::format_summary(summary);
  return qft::kExitOk;
}

int verify(const std::vector<fs::path>& dirs, bool as_json) {
  int code = qft::kExitOk;
  ordered_json list = ordered_json::array();
  for (const fs::path& dir : dirs) {
    const auto report = qft::checkpoint::verify(dir);
    if (!report.ok()) code = qft::kExitFailed;
    if (as_json) {
      list.push_back(qft::checkpoint::to_json(dir, report));
      continue;
    }
    std::cout << qft::checkpoint::format_report(dir, report);
  }
  if (as_json) std::cout << list.dump(2) << "\n";
  return code;
}

int run(int argc, char** argv) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("version", "the version")("json", "print JSON");
  po::options_description hidden;
  hidden.add_options()("words", po::value<std::vector<std::string>>());
  po::options_description all;
  all.add(options).add(hidden);
  po::variables_map given;
  try {
    po::store(po::command_line_parser(argc, argv)
                  .options(all)
                  .positional(po::positional_options_description().add("words", -1))
                  .run(),
              given);
  } catch (const po::error& e) {
    qft::fail_config("{}\n{}", e.what(), kUsage);
  }
  if (given.count("help")) {
    std::cout << kUsage << "\n" << options;
    return qft::kExitOk;
  }
  if (given.count("version")) {
    std::cout << "qft-ckpt " << qft::version() << "\n";
    return qft::kExitOk;
  }
  if (!given.count("words")) qft::fail_config("a command is missing\n{}", kUsage);
  auto words = given["words"].as<std::vector<std::string>>();
  const std::string command = words.front();
  words.erase(words.begin());
  if (command != "inspect" && command != "verify")
    qft::fail_config("'{}' is neither inspect nor verify\n{}", command, kUsage);
  if (words.empty()) qft::fail_config("{} needs a directory\n{}", command, kUsage);
  const std::vector<fs::path> dirs = expand(words);
  return (command == "inspect" ? inspect : verify)(dirs, given.count("json") > 0);
}

}  // namespace

int main(int argc, char** argv) {
  qft::log::init({});
  try {
    return run(argc, argv);
  } catch (const qft::Error& e) {
    std::cerr << "qft-ckpt: " << e.what() << "\n";
    return e.exit_code();
  } catch (const std::exception& e) {
    std::cerr << "qft-ckpt: " << e.what() << "\n";
    return qft::kExitFailed;
  }
}
