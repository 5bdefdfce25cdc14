#include "qft/comm/exchange.h"

#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::comm {
namespace {

/// The errors of several ranks, with the exit code of the first.
class AgreedError : public Error {
 public:
  AgreedError(const std::string& message, int code) : Error(message), code_(code) {}
  int exit_code() const noexcept override { return code_; }

 private:
  int code_;
};

}  // namespace

std::string broadcast_string(Communicator& comm, std::string text, int root) {
  const auto length = broadcast_value(comm, static_cast<std::int64_t>(text.size()), root);
  text.resize(static_cast<std::size_t>(length));
  comm.host().broadcast(text.data(), text.size(), DType::u8, root);
  return text;
}

nlohmann::json broadcast_json(Communicator& comm, const nlohmann::json& value, int root) {
  return nlohmann::json::parse(on_root(comm, [&] { return value.dump(); }, root));
}

std::vector<std::string> all_gather_strings(Communicator& comm, const std::string& text) {
  const auto lengths = all_gather_value(comm, static_cast<std::int64_t>(text.size()));
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::string joined(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), '\0');
  comm.host().all_gather_v(text.data(), joined.data(), counts, DType::u8);
  std::vector<std::string> texts;
  std::size_t offset = 0;
  for (const auto count : counts) {
    texts.push_back(joined.substr(offset, count));
    offset += count;
  }
  return texts;
}

void all_agree(Communicator& comm, const std::string& local_error, int exit_code) {
  // The common case is one small reduction that finds the lowest failing rank.
  const int first = all_reduce_value(comm, local_error.empty() ? comm.size() : comm.rank(), ReduceOp::min);
  if (first == comm.size()) return;
  const int code = broadcast_value(comm, exit_code, first);
  const auto texts = all_gather_strings(comm, local_error);
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (int r = 0; r < comm.size(); ++r) {
    const auto& text = texts[static_cast<std::size_t>(r)];
    if (text.empty()) continue;
    const auto known = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
    if (known == groups.end()) {
      groups.push_back({text, {r}});
    } else {
      known->second.push_back(r);
    }
  }
  std::string message;
  for (const auto& [text, ranks] : groups) {
    if (!message.empty()) message += "\n";
    const bool everywhere = ranks.size() == static_cast<std::size_t>(comm.size());
    message += everywhere ? text : fmt::format("on rank{} {}: {}", ranks.size() > 1 ? "s" : "", format_ranks(ranks), text);
  }
  if (code == kExitUsage) throw ConfigError(message);
  throw AgreedError(message, code);
}

void agreed(Communicator& comm, const std::function<void()>& body) {
  std::string error;
  int code = kExitFailed;
  bool failed = true;
  try {
    body();
    failed = false;
  } catch (const Error& e) {
    error = e.what();
    code = e.exit_code();
  } catch (const std::exception& e) {
    error = e.what();
  }
  if (failed && error.empty()) error = "an error without a message";
  all_agree(comm, error, code);
}

std::string on_root(Communicator& comm, const std::function<std::string()>& body, int root) {
  std::string text;
  agreed(comm, [&] {
    if (comm.rank() == root) text = body();
  });
  return broadcast_string(comm, std::move(text), root);
}

}  // namespace qft::comm
