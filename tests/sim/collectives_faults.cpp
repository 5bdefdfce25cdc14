#include "collectives_faults.h"

#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <system_error>

#include <c10/util/Exception.h>

namespace qft::sim::collectives {
namespace {

struct Plan {
  Fault fault = Fault::call;
  int operation = 0;
  int rank = -1;
};

/// Returns -1 if the text is not a whole number.
int whole_number(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

Plan plan_of(const std::string& text) {
  const auto colon = text.find(':');
  const auto at = colon == std::string::npos ? colon : text.find('@', colon);
  const std::string kind = text.substr(0, colon);
  Plan plan;
  if (colon != std::string::npos) plan.operation = whole_number(std::string_view(text).substr(0, at).substr(colon + 1));
  if (at != std::string::npos) plan.rank = whole_number(std::string_view(text).substr(at + 1));
  const bool known = kind == "call" || kind == "stall" || kind == "error";
  TORCH_CHECK(known && plan.operation > 0 && (at == std::string::npos || plan.rank >= 0), "sim: QFT_SIM_COLLECTIVE_FAULT='", text,
              "' is not call, stall or error, as KIND:N or KIND:N@RANK with N from 1");
  plan.fault = kind == "call" ? Fault::call : kind == "stall" ? Fault::stall : Fault::error;
  return plan;
}

struct Plans {
  Plans() {
    if (const char* text = std::getenv("QFT_SIM_COLLECTIVE_FAULT"); text != nullptr && *text != '\0')
      all.push_back(plan_of(text));
  }
  std::mutex mutex;
  std::vector<Plan> all;
};
Plans& plans() {
  static auto* const one = new Plans;
  return *one;
}

std::atomic<std::int64_t>& limit() {
  static std::atomic<std::int64_t> milliseconds = [] {
    const char* text = std::getenv("QFT_SIM_COLLECTIVE_LIMIT");
    return text == nullptr ? 0 : static_cast<std::int64_t>(std::atof(text) * 1000);
  }();
  return milliseconds;
}

}  // namespace

std::vector<Fault> faults_of_next(int rank) {
  const std::lock_guard lock(plans().mutex);
  std::vector<Fault> due;
  for (Plan& plan : plans().all)
    if ((plan.rank < 0 || plan.rank == rank) && --plan.operation == 0) due.push_back(plan.fault);
  return due;
}

std::chrono::milliseconds wait_limit() {
  return std::chrono::milliseconds(limit().load());
}

}  // namespace qft::sim::collectives

namespace qft::sim {

void limit_waits(std::chrono::milliseconds of) {
  collectives::limit() = of.count();
}

void inject(Fault fault, int operation, int rank) {
  const std::lock_guard lock(collectives::plans().mutex);
  collectives::plans().all.push_back({fault, operation, rank});
}

void inject(const std::string& words) {
  const collectives::Plan plan = collectives::plan_of(words);
  inject(plan.fault, plan.operation, plan.rank);
}

void clear_faults() {
  const std::lock_guard lock(collectives::plans().mutex);
  collectives::plans().all.clear();
}

}  // namespace qft::sim
