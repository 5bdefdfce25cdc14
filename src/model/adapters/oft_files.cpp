// OFT's part of adapter_config.json.
#include "qft/core/error.h"

#include "json_keys.h"
#include "kinds.h"

namespace qft::model {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxOftSize = 65536, kMaxOftTerms = 64;

/// The first PEFT version with the same series as qft.
constexpr const char* kSeriesVersion = "0.18.0";

/// Returns the first two numbers of a version, such as (0, 18) for "0.18.1.dev0".
std::pair<int, int> version_of(const std::string& text) {
  const auto dot = text.find('.');
  const auto number = [](const std::string& digits) { return digits.empty() ? 0 : std::atoi(digits.c_str()); };
  return {number(text.substr(0, dot)), dot == std::string::npos ? 0 : number(text.substr(dot + 1))};
}

std::int64_t read_number(const json& config, const char* key, std::int64_t fallback, std::int64_t min, const std::string& where,
                         std::int64_t max = kMaxOftSize) {
  const json value = value_or<json>(config, key, json(fallback));
  require(value.is_number_integer() && value >= min && value <= max, "{}: {} is {}, expected an integer from {} to {}", where,
          key, value.dump(), min, max);
  return value.get<std::int64_t>();
}

}  // namespace

AdapterConfig read_oft(const json& config, const std::filesystem::path& dir, const std::string& where) {
  OftConfig oft;
  require(config.contains("oft_block_size"),
          "{}: oft_block_size is missing: the adapter comes from PEFT before 0.14, in which OFT rotated outputs; train it again",
          where);
  read_common(config, oft, where);
  oft.rank = read_number(config, "r", 0, 0, where);
  oft.block_size = read_number(config, "oft_block_size", 0, 0, where);
  require((oft.rank == 0) != (oft.block_size == 0), "{}: r is {} and oft_block_size is {}: expected one of them above 0", where,
          oft.rank, oft.block_size);
  oft.shared = value_or(config, "block_share", false);
  oft.neumann = value_or(config, "use_cayley_neumann", true);
  oft.terms = read_number(config, "num_cayley_neumann_terms", 5, 2, where, kMaxOftTerms);
  const json version = config.value("peft_version", json());
  const std::string theirs = version.is_string() ? version.get<std::string>() : "0";
  require(
      !oft.neumann || version_of(theirs) >= version_of(kSeriesVersion),
      "{}: use_cayley_neumann is true and peft_version is {}: the adapter was trained with a different series, as used by PEFT "
      "before {}; train it again",
      where, version.dump(), kSeriesVersion);
  read_targets(oft, config.value("target_modules", json()), "", where);
  oft.expert_modules = has_expert_modules(dir);
  return oft;
}

json write_oft(const AdapterConfig& config) {
  const OftConfig& oft = config.oft;
  return {{"block_share", oft.shared},
          {"coft", false},
          {"eps", 6e-5},
          {"exclude_modules", nullptr},
          {"init_weights", true},
          {"module_dropout", 0.0},
          {"num_cayley_neumann_terms", oft.terms},
          {"oft_block_size", oft.block_size},
          {"peft_version", kSeriesVersion},
          {"r", oft.rank},
          {"use_cayley_neumann", oft.neumann}};
}

}  // namespace qft::model
