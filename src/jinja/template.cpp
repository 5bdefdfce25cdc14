#include "qft/jinja/template.h"

#include <algorithm>

#include "methods.h"
#include "runtime.h"

namespace qft::jinja {

struct Template::Impl {
  std::string name;
  Tree tree;
  std::vector<std::string> variables;
};

Template Template::parse(std::string_view source, std::string name) {
  constexpr std::size_t kMaxBytes = std::size_t{4} << 20;
  require(source.size() <= kMaxBytes, "{}: a template of {} bytes; the limit is {}", name, source.size(), kMaxBytes);
  auto impl = std::make_shared<Impl>();
  impl->name = std::move(name);
  impl->tree = parse_template(source, impl->name);
  for (const std::string& variable : impl->tree.variables)
    if (!is_global(variable)) impl->variables.push_back(variable);
  std::sort(impl->variables.begin(), impl->variables.end());
  return Template(std::move(impl));
}

Rendering Template::render(const Json& variables, const RenderOptions& options) const {
  require(variables.is_object(), "{}: the variables are not an object", impl_->name);
  Runtime rt(impl_->tree, impl_->name, options);
  rt.variables.reserve(impl_->tree.variables.size());
  for (const std::string& name : impl_->tree.variables) {
    const auto given = variables.find(name);
    if (given != variables.end()) {
      rt.variables.push_back(Value::json(*given, rt));
    } else {
      const MethodRow* function = find_global(name);
      rt.variables.push_back(function != nullptr ? Value(rt.make<FunctionObject>(0, *function, Value())) : Value());
    }
  }
  run_template(rt);
  return {std::move(rt.out), std::move(rt.generated)};
}

bool Template::has_generation() const {
  return impl_->tree.has_generation;
}
const std::vector<std::string>& Template::variables() const {
  return impl_->variables;
}
const std::string& Template::name() const {
  return impl_->name;
}

}  // namespace qft::jinja
