#include "report.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "queues.h"
#include "sim.h"
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

namespace qft::sim {
namespace {

struct KeptErrors {
  std::mutex mutex;
  std::vector<std::string> errors;
};
KeptErrors& kept() {
  static auto* const all = new KeptErrors;
  return *all;
}

/// State of a thread. Never freed, because tensors outlive a thread's objects.
struct Texts {
  std::string to_throw, label;
  std::string operation;
  int operations = 0;  ///< nesting depth
};
Texts& texts() {
  thread_local auto* const own = new Texts;
  return *own;
}

void keep(const std::string& error) {
  const std::lock_guard lock(kept().mutex);
  kept().errors.push_back(error);
}

void at_exit() {
  std::vector<std::string> left = std::move(kept().errors);
  {
    Lock lock = lock_machine();
    queues().stop(lock);
    if (queues().failed()) left.push_back("queued work threw, and nobody waited for it");
  }
  if (left.empty()) return;
  std::fflush(nullptr);
  for (const std::string& error : left) std::fprintf(stderr, "%s\n", error.c_str());
  std::fprintf(stderr, "sim: the process ends with %zu error%s in its use of the device\n", left.size(),
               left.size() == 1 ? "" : "s");
  std::_Exit(1);
}

}  // namespace

void fail_use(const std::string& error) {
  keep(error);
  TORCH_CHECK(false, error);
}

void report(const std::string& error) {
  keep(error);
  if (texts().to_throw.empty()) texts().to_throw = error;
}

void throw_reported() {
  if (!texts().to_throw.empty()) TORCH_CHECK(false, std::exchange(texts().to_throw, {}));
}

std::vector<std::string> errors() {
  const std::lock_guard lock(kept().mutex);
  texts().to_throw.clear();
  return std::exchange(kept().errors, {});
}

void watch_exit() {
  std::atexit(at_exit);
  std::at_quick_exit(at_exit);
}

std::string current_operation() {
  const std::string name = texts().operations > 0 ? texts().operation : "";
  return name.starts_with("aten::") ? name.substr(6) : name;
}

void watch_operations() {
  const auto begin = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    if (texts().operations++ == 0) texts().operation = function.name();
    return nullptr;
  };
  const auto end = [](const at::RecordFunction&, at::ObserverContext*) { --texts().operations; };
  at::addGlobalCallback(at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}));
}

const std::string& current_label() {
  return texts().label;
}
void set_label(std::string text) {
  texts().label = std::move(text);
}

}  // namespace qft::sim
