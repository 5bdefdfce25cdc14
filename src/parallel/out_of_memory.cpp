#include "qft/parallel/out_of_memory.h"

#include "qft/comm/session.h"
#include "qft/core/error.h"
#include "qft/device/memory.h"

#include <new>
#include <string_view>

#include <c10/util/Exception.h>

namespace qft::parallel {
namespace {

/// LibTorch's CPU allocator throws a plain c10::Error.
bool is_out_of_memory(std::string_view text) {
  return text.find("can't allocate memory") != std::string_view::npos || text.find("out of memory") != std::string_view::npos;
}

[[noreturn]] void explain(const std::string& what, const std::string& where, const std::string& held, const std::string& advice) {
  std::string who = "this process";
  if (comm::Session::exists())
    who = fmt::format("rank {} on {}", comm::Session::current().rank(), comm::Session::current().hostname());
  fail("out of memory: {}, in {}: {}. Held: {}. Any of these helps: {}", who, where, what, held, advice);
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

void explain_out_of_memory(const std::function<void()>& body, const std::function<std::string()>& where,
                           const std::function<std::string()>& held, const std::string& advice) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    explain("an allocation failed", where(), held(), advice);
  } catch (const c10::Error& e) {
    if (!is_out_of_memory(e.what())) throw;
    explain(first_line(e.what_without_backtrace()), where(), held(), advice);
  }
}

}  // namespace qft::parallel
