#include "rope_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

namespace qft::model {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char *kOriginal = "original_max_position_embeddings", *kPartial = "partial_rotary_factor";

/// All keys of transformers' scalings and of their tables.
constexpr std::string_view kScalingKeys[] = {
    "rope_type",        "type",      "rope_theta", "factor", kOriginal,        kPartial,   "low_freq_factor", "high_freq_factor",
    "attention_factor", "beta_fast", "beta_slow",  "mscale", "mscale_all_dim", "truncate", "mrope_section",   "mrope_interleaved",
    "finetuned"};

double required_number(const ConfigReader& reader, const char* key) {
  require(reader.find(key) != nullptr, "{}: key '{}' is missing", reader.where(), key);
  return reader.number(key, 0.0);
}

RopeConfig::Llama3 read_llama3(const ConfigReader& reader, std::int64_t original) {
  return {required_number(reader, "factor"), required_number(reader, "low_freq_factor"),
          required_number(reader, "high_freq_factor"), original};
}

double read_factor(const ConfigReader& reader) {
  const double factor = reader.number("factor", 0.0);
  require(factor >= 1.0 && std::isfinite(factor), "{}: factor is {}, expected a number of 1 or more", reader.where(), factor);
  return factor;
}

/// Returns the factor for cosines and sines if contexts are `factor` times as long (Peng et al. 2023, equation 22).
double temperature(double factor, double mscale = 1.0) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

/// Reads a number; 0 counts as absent, as in transformers.
double number_or(const ConfigReader& reader, const char* key, double fallback) {
  const double number = reader.number(key, fallback);
  return number == 0.0 ? fallback : number;
}

RopeConfig::Yarn read_yarn(const ConfigReader& reader, std::int64_t original) {
  RopeConfig::Yarn yarn;
  yarn.factor = read_factor(reader);
  yarn.beta_fast = number_or(reader, "beta_fast", yarn.beta_fast);
  yarn.beta_slow = number_or(reader, "beta_slow", yarn.beta_slow);
  yarn.original_max_position_embeddings = original;
  yarn.truncate = reader.boolean("truncate", yarn.truncate);
  const double mscale = reader.number("mscale", 0.0), all_dims = reader.number("mscale_all_dim", 0.0);
  const double usual = mscale != 0.0 && all_dims != 0.0 ? temperature(yarn.factor, mscale) / temperature(yarn.factor, all_dims)
                                                        : temperature(yarn.factor);
  yarn.attention_factor = reader.number("attention_factor", usual);
  return yarn;
}

std::int64_t reached(double factor, std::int64_t positions) {
  return static_cast<std::int64_t>(std::min(factor * static_cast<double>(positions), 1e9));
}

/// Returns the rotation base for a sequence with `length` tokens, in fp32 except for the power, like transformers.
float base_of(const RopeConfig& rope, double dim, std::int64_t length) {
  const float theta = static_cast<float>(rope.theta);
  if (!rope.scales_for(length)) return theta;
  const double factor = rope.dynamic->factor;
  const float scaled = static_cast<float>(factor) * static_cast<float>(length) / static_cast<float>(rope.dynamic->positions);
  const float stretch = scaled - static_cast<float>(factor - 1.0);
  return theta * static_cast<float>(std::pow(static_cast<double>(stretch), dim / (dim - 2.0)));
}

float scaled_by(const RopeConfig::Llama3& s, float f) {
  const double old_context = static_cast<double>(s.original_max_position_embeddings);
  const double wavelength = 2.0 * std::numbers::pi / f;
  if (wavelength > old_context / s.low_freq_factor) return static_cast<float>(f / s.factor);
  if (wavelength < old_context / s.high_freq_factor) return f;
  const double smooth = (old_context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return static_cast<float>((1.0 - smooth) * f / s.factor + smooth * f);
}

/// The range of dimensions in which YaRN blends from original to interpolated frequencies.
struct YarnRange {
  double low, high;

  YarnRange(const RopeConfig::Yarn& y, double theta, double dim) {
    const auto dimension = [&](double rotations) {
      return dim * std::log(static_cast<double>(y.original_max_position_embeddings) / (rotations * 2.0 * std::numbers::pi)) /
             (2.0 * std::log(theta));
    };
    low = dimension(y.beta_fast);
    high = dimension(y.beta_slow);
    if (y.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1.0);
    if (low == high) high += 0.001;
  }
};

float scaled_by(const RopeConfig::Yarn& y, const YarnRange& range, std::size_t i, float power) {
  const float ramp = std::clamp(
      (static_cast<float>(i) - static_cast<float>(range.low)) / static_cast<float>(range.high - range.low), 0.0F, 1.0F);
  const float old_share = 1.0F - ramp;
  return 1.0F / (static_cast<float>(y.factor) * power) * (1.0F - old_share) + 1.0F / power * old_share;
}

/// Returns nullptr if the key is absent, null or an empty object.
const json* object_of(const ConfigReader& config, const char* key) {
  const json* object = config.find(key);
  require(object == nullptr || object->is_object(), "{}: {} is {}, expected an object", config.where(), key,
          object == nullptr ? "" : object->dump());
  return object == nullptr || object->empty() ? nullptr : object;
}

/// Returns the key to use. transformers 5 writes rope_parameters (with theta inside), 4.x rope_theta and rope_scaling. If a file
/// has both, transformers takes rope_scaling and the theta beside it. nullptr: the file has neither.
const char* key_of_scaling(const ConfigReader& config, double default_theta, std::vector<std::string>& notes) {
  const json *old = object_of(config, "rope_scaling"), *parameters = object_of(config, "rope_parameters");
  if (old == nullptr || parameters == nullptr || *old == *parameters)
    return parameters != nullptr ? "rope_parameters" : old != nullptr ? "rope_scaling" : nullptr;
  const json theta = parameters->value("rope_theta", json());
  const bool has_theta = old->contains("rope_theta") || config.find("rope_theta") != nullptr;
  require(has_theta || theta.is_null() || theta == default_theta,
          "{}: rope_scaling {} and rope_parameters {} differ: transformers uses rope_scaling with rope_theta {}, not {}: move "
          "everything into rope_parameters and remove rope_scaling",
          config.where(), old->dump(), parameters->dump(), default_theta, theta.dump());
  notes.push_back(fmt::format("{}: rope_scaling {} and rope_parameters {} differ: rope_scaling is used, as in transformers",
                              config.where(), old->dump(), parameters->dump()));
  return "rope_scaling";
}

/// Returns the positions before any scaling. A value beside the scaling takes precedence over one inside it, as in transformers.
std::int64_t read_original(const ConfigReader& config, const ConfigReader& scaling, std::int64_t max_positions,
                           std::vector<std::string>& notes) {
  const std::int64_t inside = scaling.positive(kOriginal, max_positions), counts = config.positive(kOriginal, inside);
  if (counts != inside && scaling.find(kOriginal) != nullptr)
    notes.push_back(fmt::format("{}: {} is {} beside the rope scaling and {} inside: the first is used, as in transformers",
                                config.where(), kOriginal, counts, inside));
  return counts;
}

void check_keys(const ConfigReader& scaling, std::vector<std::string>& notes) {
  for (const auto& [key, value] : scaling.object().items()) {
    require(!value.is_object(),
            "{}: '{}' has rotary parameters for one kind of layer; only parameters shared by all layers are implemented "
            "(transformers has no others for this model)",
            scaling.where(), key);
    if (std::ranges::find(kScalingKeys, key) == std::end(kScalingKeys) && !value.is_null())
      notes.push_back(fmt::format("{}: {} is {}, but is ignored (also by transformers)", scaling.where(), key, value.dump()));
  }
}

void read_kind(const ConfigReader& config, const ConfigReader& scaling, const std::string& type, std::int64_t& max_positions,
               RopeConfig& rope, std::vector<std::string>& notes) {
  if (type == "llama3") {
    rope.llama3 = read_llama3(scaling, read_original(config, scaling, max_positions, notes));
  } else if (type == "yarn") {
    rope.yarn = read_yarn(scaling, read_original(config, scaling, max_positions, notes));
    max_positions = std::max(max_positions, reached(rope.yarn->factor, rope.yarn->original_max_position_embeddings));
  } else if (type == "linear") {
    rope.linear = read_factor(scaling);
  } else if (type == "dynamic") {
    // transformers uses max_position_embeddings even if the file has original_max_position_embeddings.
    require(config.find("max_position_embeddings") != nullptr,
            "{}: rope scaling 'dynamic' needs max_position_embeddings, which is missing", config.where());
    rope.dynamic = {read_factor(scaling), max_positions};
    max_positions = reached(rope.dynamic->factor, max_positions);
  } else {
    require(type == "default" || type == "mrope",
            "{}: rope scaling '{}' is not implemented (implemented: default, linear, llama3, yarn, dynamic)", config.where(),
            type);
  }
}

}  // namespace

RopeConfig read_rope(const ConfigReader& config, std::int64_t& max_positions, const RopeDefaults& defaults,
                     std::vector<std::string>& notes) {
  RopeConfig rope;
  const char* key = key_of_scaling(config, defaults.theta, notes);
  static const json kNothing = json::object();
  const ConfigReader scaling(key == nullptr ? kNothing : *config.find(key),
                             key == nullptr ? config.where() : fmt::format("{}: {}", config.where(), key));
  check_keys(scaling, notes);
  const std::string type = scaling.text("rope_type", scaling.text("type", "default"));
  rope.theta = scaling.number("rope_theta", config.number("rope_theta", defaults.theta));
  if (const double beside = config.number("rope_theta", rope.theta); beside != rope.theta)
    notes.push_back(fmt::format("{}: rope_theta is {}, but {} in {}: the latter is used, as in transformers", config.where(),
                                beside, rope.theta, key));
  const double partial = scaling.number(kPartial, config.number(kPartial, defaults.partial.value_or(1.0)));
  require(partial > 0.0 && partial <= 1.0, "{}: {} is {}, expected a share of a head in (0, 1]", config.where(), kPartial,
          partial);
  if (defaults.partial)
    rope.partial = partial;
  else
    require(partial == 1.0 || type == "default" || type == "mrope",
            "{}: {} is {}, but this model_type rotates whole heads: remove it", config.where(), kPartial, partial);
  if (!defaults.partial && partial != 1.0)
    notes.push_back(fmt::format("{}: {} is {}, but is ignored: this model_type rotates whole heads, as in transformers",
                                config.where(), kPartial, partial));
  read_kind(config, scaling, type, max_positions, rope, notes);
  return rope;
}

namespace {

/// Returns the object of config.json that describes the decoder.
ordered_json& decoder_of(ordered_json& config) {
  const auto nested = config.find("text_config");
  return nested == config.end() ? config : *nested;
}

}  // namespace

std::int64_t ModelConfig::first_positions() const {
  if (rope.llama3) return rope.llama3->original_max_position_embeddings;
  if (rope.dynamic) return rope.dynamic->positions;
  return rope.yarn ? rope.yarn->original_max_position_embeddings : max_position_embeddings;
}

ModelConfig ModelConfig::scaled_to(std::int64_t tokens, const std::string& rope_type) const {
  const std::int64_t before = first_positions(), factor = (tokens + before - 1) / before;
  ordered_json whole = ordered_json::parse(raw);
  ordered_json& decoder = decoder_of(whole);
  const auto has = [&](const char* key) {
    const auto it = decoder.find(key);
    return it != decoder.end() && it->is_object() && !it->empty();
  };
  const char* const key = has("rope_scaling") || !decoder.contains("rope_parameters") ? "rope_scaling" : "rope_parameters";
  if (key == std::string_view("rope_scaling")) decoder.erase("rope_parameters");  // it had no effect
  decoder.erase(kOriginal);  // it would override the value inside the scaling
  ordered_json& scaling = decoder[key];
  if (!scaling.is_object()) scaling = ordered_json::object();
  for (const char* old : {"type", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor", "mscale",
                          "mscale_all_dim", "truncate", "original_max_position_embeddings"})
    scaling.erase(old);
  scaling["rope_type"] = rope_type;
  scaling["factor"] = static_cast<double>(factor);
  // transformers starts dynamic scaling at the new max_position_embeddings.
  if (rope_type != "linear") scaling["original_max_position_embeddings"] = before;
  if (rope_type == "llama3") scaling.update({{"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}});
  decoder["max_position_embeddings"] = before * factor;
  ModelConfig scaled = parse(whole.dump(2) + "\n", fmt::format("config.json with rope_scaling {}", rope_type));
  scaled.eos_token_ids = eos_token_ids;  // may come from generation_config.json
  scaled.text_prefix = text_prefix;
  scaled.tie_word_embeddings = tie_word_embeddings;
  scaled.rewritten = rewritten;
  scaled.scaled_from = before;
  return scaled;
}

std::vector<double> ModelConfig::inverse_frequencies(std::int64_t length) const {
  const std::int64_t dim = rotary_dim();
  const float base = base_of(rope, static_cast<double>(dim), length);
  std::vector<double> freq(static_cast<std::size_t>(dim / 2));
  const std::optional<YarnRange> range =
      rope.yarn ? std::optional(YarnRange(*rope.yarn, rope.theta, static_cast<double>(dim))) : std::nullopt;
  for (std::size_t i = 0; i < freq.size(); ++i) {
    // fp32 like transformers: the tables then agree to the last bit.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const float power = std::pow(base, exponent);
    float f = 1.0f / power;
    if (rope.llama3) f = scaled_by(*rope.llama3, f);
    if (range) f = scaled_by(*rope.yarn, *range, i, power);
    if (rope.linear != 1.0) f /= static_cast<float>(rope.linear);
    freq[i] = f;
  }
  return freq;
}

}  // namespace qft::model
