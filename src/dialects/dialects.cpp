#include "qft/dialects/dialects.h"

#include <utility>

#include "complete.h"
#include "describe.h"
#include "foreign_keys.h"
#include "translate.h"

namespace qft::dialects {
namespace {

class AllDialects final : public config::Dialects {
 public:
  std::optional<Key> find(std::string_view name) const override {
    const ForeignKey* foreign = find_foreign(name);
    if (foreign == nullptr) return std::nullopt;
    return Key{.own = foreign->own(), .renames = foreign->as<Renamed>() != nullptr};
  }
  std::vector<std::string_view> names() const override {
    std::vector<std::string_view> names;
    for (const ForeignKey& key : foreign_keys())
      if (has_effect(key)) names.push_back(key.name);
    return names;
  }
  std::vector<std::string_view> names_of(std::string_view own) const override {
    std::vector<std::string_view> names;
    for (const ForeignKey& key : foreign_keys())
      if (key.as<Renamed>() != nullptr && key.own() == own && key.name != own) names.push_back(key.name);
    return names;
  }
  std::string describe(std::string_view name) const override { return describe_foreign(*find_foreign(name)); }
  Translation translate(std::vector<Setting> settings, Purpose purpose) const override {
    return dialects::translate(std::move(settings), purpose);
  }
  void complete(RunConfig& config, const Translation& translation, Purpose purpose) const override {
    dialects::complete(config, translation, purpose);
  }
};

}  // namespace

const config::Dialects& all() {
  static const AllDialects dialects;
  return dialects;
}

}  // namespace qft::dialects
